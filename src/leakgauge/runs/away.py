"""A cell that is played on a cluster: what goes to a worker, and what comes back.

The worker plays it in a folder of its own and sends back the finished files, so that no folder
need be shared. It refuses what would change figures: other versions, other data, other code.
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
from leakgauge.runs.cell import Job, Outcome, play
from leakgauge.runs.spec import own_code
from leakgauge.runs.store import Store
from leakgauge.runs.work import Say


class Terms(TypedDict):
    """What must hold where a cell is played; plain values, which each version can read.

    Attributes:
        run: another word for each run: data and code may change between two.
        versions: of the packages that compute, where the run was started.
        code: the sha256 of each file of the user's own code, by the setting's text.
        folder: the working folder there; the worker goes there too, where it exists.
        memory: bytes that the cell may use; None for what the worker's machine says.
    """

    run: str
    versions: Mapping[str, str]
    code: Mapping[str, str]
    folder: str
    memory: int | None


LARGEST = 5 * 10**8
"""Bytes of the files of one cell that a worker sends back, at most."""


@dataclass(frozen=True)
class Parcel:
    """What comes back from a worker.

    Attributes:
        worker: its machine and process.
        outcome: how the cell ended; None where nothing can be played there.
        files: of the finished cell, by name.
        unfit: why nothing can be played there.
    """

    worker: str
    outcome: Outcome | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    unfit: str = ""


def orders(jobs: Sequence[Job], *, memory: int | None) -> list[Callable[[], Parcel]]:
    """Return what each worker is to call.

    Args:
        jobs: the cells.
        memory: bytes that a worker may use; None where its own machine decides.
    """
    run, folder, here = uuid.uuid4().hex, os.getcwd(), versions()

    def terms(job: Job) -> Terms:
        code = own_code(job.spec)
        return Terms(run=run, versions=here, code=code, folder=folder, memory=memory)

    return [partial(play_away, pickle.dumps(job), terms(job)) for job in jobs]


def received(parcel: Parcel, jobs: Mapping[str, Job], store: Store, say: Say) -> Outcome:
    """Keep the cell that a worker played, and return how it ended.

    Args:
        parcel: from the worker.
        jobs: the cells by key.
        store: of the grid.
        say: gets a note on a damaged cell.

    Raises:
        InputError: nothing can be played on that worker.
    """
    outcome = parcel.outcome
    if outcome is None:
        raise InputError(f"the worker {parcel.worker} {parcel.unfit}")
    if outcome.refusal is None:
        job = jobs[outcome.key]
        with store.alone(job.key):
            if store.kept(job.key, job.identity, say) is None:
                store.forget(job.key)
                part = store.work(job.key).files
                for name, content in parcel.files.items():
                    (part / Path(name).name).write_bytes(content)
                store.place(job.key)
    return replace(outcome, worker=parcel.worker)


_ALONE = threading.Lock()
"""Threads of a worker share torch, working folder and generators: it plays one cell at a time."""

_run = ""
"""The run that the caches of this worker belong to."""


def play_away(content: bytes, terms: Terms) -> Parcel:
    """Play one cell in a folder of its own, on the worker that calls this.

    Args:
        content: the pickled ``Job``, which is read after the versions.
        terms: under which it is played.
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
        return Parcel(worker, unfit=text)
    memory = terms["memory"] or allowed()
    with _ALONE, _in_folder(terms["folder"]), bounded(str(memory)):
        try:
            _begin(terms["run"], terms["code"])
            job = _fitting(content, terms["code"])
        except InputError as error:
            return Parcel(worker, unfit=str(error))
        with TemporaryDirectory(prefix="leakgauge-") as place:
            outcome = play(job, Path(place))
            return _parcel(worker, outcome, Store(Path(place)).folder(job.key))


def _begin(run: str, code: Mapping[str, str]) -> None:
    """Forget data and code that a worker keeps from an earlier run: they may have changed."""
    global _run
    if run != _run:
        sources.forget()
        importlib.invalidate_caches()
        for text in code:
            sys.modules.pop(text.partition(":")[0].strip(), None)
        _run = run


def _fitting(content: bytes, code: Mapping[str, str]) -> Job:
    """The job, where this worker can play it as the process that sent it would."""
    try:
        job: Job = pickle.loads(content)
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


def _parcel(worker: str, outcome: Outcome, cell: Path) -> Parcel:
    if outcome.refusal is not None:
        return Parcel(worker, outcome)
    paths = [one for one in cell.iterdir() if not one.name.startswith(".")]
    size = sum(one.stat().st_size for one in paths)
    if size > LARGEST:
        refusal = (
            f"its files take {in_words(size)}, and a worker sends {in_words(LARGEST)} at most; "
            "use --executor processes"
        )
        return Parcel(worker, replace(outcome, refusal=refusal))
    return Parcel(worker, outcome, {one.name: one.read_bytes() for one in sorted(paths)})


@contextlib.contextmanager
def _in_folder(folder: str) -> Iterator[None]:
    """Work in the folder of the run where this machine has it: relative paths and own code."""
    with contextlib.ExitStack() as inside:
        if os.path.isdir(folder):
            inside.enter_context(contextlib.chdir(folder))
        yield
