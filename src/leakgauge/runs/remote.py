"""Runs a cell on a cluster: what goes to a worker, and what comes back.

The worker runs it in a temporary folder and sends back the finished files, so that no folder need
be shared. It refuses what would change figures: other versions, other data, other code.
"""

import contextlib
import importlib
import os
import pickle
import socket
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypedDict

from leakgauge.core.checks import InputError
from leakgauge.core.extras import check_device
from leakgauge.core.memory import allowed, bounded, in_words
from leakgauge.core.versions import versions
from leakgauge.runs import sources
from leakgauge.runs.cell import CellJob, CellOutcome, run_cell
from leakgauge.runs.spec import own_code
from leakgauge.runs.store import Store
from leakgauge.runs.work import Say


class RemoteTerms(TypedDict):
    """Conditions of a worker that runs a cell; plain values, which every version can read.

    Attributes:
        run: a word that differs for each run, since data and code may change between runs.
        versions: versions of the packages that compute, in the process that started the run.
        code: sha256 of each file of the user's code, by the text of the setting.
        folder: working folder of that process; the worker changes to it if it exists.
        memory: bytes that the cell may use; None for what the worker's machine allows.
    """

    run: str
    versions: Mapping[str, str]
    code: Mapping[str, str]
    folder: str
    memory: int | None


LARGEST = 5 * 10**8
"""Largest size in bytes of the files of one cell that a worker sends back."""


@dataclass(frozen=True)
class RemoteResult:
    """The result of a worker.

    Attributes:
        worker: its machine and process.
        outcome: how the cell ended; None if the worker cannot run it.
        files: files of the finished cell, by name.
        unfit: why the worker cannot run it.
    """

    worker: str
    outcome: CellOutcome | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    unfit: str = ""


def remote_jobs(jobs: Sequence[CellJob], *, memory: int | None) -> list[Callable[[], RemoteResult]]:
    """Return the calls for the workers.

    Args:
        jobs: the cells.
        memory: bytes that a worker may use; None if its own machine decides.
    """
    run, folder, here = uuid.uuid4().hex, os.getcwd(), versions()

    def terms(job: CellJob) -> RemoteTerms:
        code = own_code(job.spec)
        return RemoteTerms(run=run, versions=here, code=code, folder=folder, memory=memory)

    return [partial(run_remotely, pickle.dumps(job), terms(job)) for job in jobs]


def keep_result(
    result: RemoteResult, jobs: Mapping[str, CellJob], store: Store, say: Say
) -> CellOutcome:
    """Keep the cell that a worker ran, and return how it ended.

    Args:
        result: result of the worker.
        jobs: the cells by key.
        store: store of the grid.
        say: gets a note about a damaged cell.

    Raises:
        InputError: the worker cannot run the cell.
    """
    outcome = result.outcome
    if outcome is None:
        raise InputError(f"the worker {result.worker} {result.unfit}")
    if outcome.refusal is None:
        job = jobs[outcome.key]
        with store.alone(job.key):
            if store.kept(job.key, job.identity, say) is None:
                store.forget(job.key)
                part = store.work(job.key).files
                for name, content in result.files.items():
                    (part / Path(name).name).write_bytes(content)
                store.place(job.key)
    return replace(outcome, worker=result.worker)


_ALONE = threading.Lock()
"""Threads of a worker share torch, working folder and generators: it runs one cell at a time."""

_run = ""
"""The run that the caches of this worker belong to."""


def run_remotely(content: bytes, terms: RemoteTerms) -> RemoteResult:
    """Run one cell in a temporary folder, on the worker that calls this.

    Args:
        content: the pickled ``CellJob``, which is read after the versions.
        terms: conditions of the run.
    """
    worker = f"{socket.gethostname()}:{os.getpid()}"
    wanted = terms["versions"]
    differ = [
        f"{name} {here} (there {wanted.get(name, 'none')})"
        for name, here in versions().items()
        if wanted.get(name) != here
    ]
    if differ:
        text = f"has other versions: {', '.join(differ)}; install the versions of this process"
        return RemoteResult(worker, unfit=text)
    memory = terms["memory"] or allowed()
    with _ALONE, _in_folder(terms["folder"]), bounded(str(memory)):
        try:
            _begin(terms["run"], terms["code"])
            job = _fitting(content, terms["code"])
        except InputError as error:
            return RemoteResult(worker, unfit=str(error))
        with TemporaryDirectory(prefix="leakgauge-") as place:
            outcome = run_cell(job, Path(place))
            return _parcel(worker, outcome, Store(Path(place)).folder(job.key))


def _begin(run: str, code: Mapping[str, str]) -> None:
    """Forget data and code of an earlier run, which may have changed."""
    global _run
    if run != _run:
        sources.forget()
        importlib.invalidate_caches()
        for text in code:
            sys.modules.pop(text.partition(":")[0].strip(), None)
        _run = run


def _fitting(content: bytes, code: Mapping[str, str]) -> CellJob:
    """Return the job; refuse one that would give other figures here than at its sender."""
    try:
        job: CellJob = pickle.loads(content)
    except (ImportError, AttributeError) as error:
        raise InputError(f"lacks a package ({error}); install there what is installed here") from (
            error
        )
    found = own_code(job.spec)
    for text, wanted in code.items():
        if found.get(text) != wanted:
            state = "lacks the code" if text not in found else "has other code for"
            raise InputError(
                f"{state} {text!r}; put its file into {os.getcwd()!r} there, or install its package"
            )
    data = job.spec.task or job.spec.data
    try:
        check_device(job.spec.device)
    except InputError as error:
        raise InputError(f"lacks a device: {error}") from error
    try:
        same = sources.source_of(job.spec).fingerprint == job.fingerprint
    except InputError as error:
        raise InputError(
            f"cannot read the data {data!r} ({error}); put them at the same path there, or set "
            "LEAKGAUGE_DATA there"
        ) from error
    if not same:
        raise InputError(f"has other data {data!r}; copy those of this process there")
    return job


def _parcel(worker: str, outcome: CellOutcome, cell: Path) -> RemoteResult:
    if outcome.refusal is not None:
        return RemoteResult(worker, outcome)
    paths = [one for one in cell.iterdir() if not one.name.startswith(".")]
    size = sum(one.stat().st_size for one in paths)
    if size > LARGEST:
        refusal = (
            f"its files take {in_words(size)}, and a worker sends {in_words(LARGEST)} at most; "
            "use --executor processes"
        )
        return RemoteResult(worker, replace(outcome, refusal=refusal))
    return RemoteResult(worker, outcome, {one.name: one.read_bytes() for one in sorted(paths)})


@contextlib.contextmanager
def _in_folder(folder: str) -> Iterator[None]:
    """Change to the folder of the run if this machine has it, for relative paths and code."""
    with contextlib.ExitStack() as inside:
        if os.path.isdir(folder):
            inside.enter_context(contextlib.chdir(folder))
        yield
