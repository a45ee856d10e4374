"""The data that a ``Spec`` names: tables, images and named datasets, or a user's own task."""

import functools
import hashlib
from pathlib import Path

import pandas as pd
import torch

from leakgauge.core.checks import InputError, require
from leakgauge.core.reductions import refuse_penalty, refuse_summed
from leakgauge.core.types import Dataset, Task
from leakgauge.data.content import content_digest
from leakgauge.data.fingerprints import fingerprint
from leakgauge.data.source import Source, open_data
from leakgauge.data.text_tables import TextFormat
from leakgauge.gradients.vectorising import REFUSALS
from leakgauge.runs.spec import Spec
from leakgauge.runs.user_task import load_task
from leakgauge.training.local import in_evaluation

TRIED = 8
"""Number of records on which a user's loss is tried out."""


def source_of(spec: Spec) -> Source:
    """Open the data of a ``Spec``; each are read once until ``forget`` is called.

    Raises:
        InputError: the data do not exist, or both or neither of DATA and ``--task`` are named.
    """
    require(
        bool(spec.data) != (spec.task is not None),
        "expected either DATA (a table, images or a dataset's name) or --task MODULE:FUNCTION",
    )
    if spec.task is not None:
        text = text_of(spec)
        require(text is None, f"{text and text.given} is about a TABLE; leave it out")
        return _from_task(spec.task, spec.seed)
    return _opened(spec.data, spec.side, text_of(spec), spec.allow_outside, _place(spec.data))


def task_source(task: Task, dataset: Dataset, *, name: str = "task") -> Source:
    """Return a user's own model and records as a source.

    The fingerprint covers the records, and the content of model and loss: weights, settings, code.

    Raises:
        InputError: the loss adds up the losses of its records, or reads trainable tensors itself.
    """
    _refuse_loss(task, dataset)
    made = content_digest(dataset.schema, task.model, task.loss)
    content = f"{fingerprint(dataset)} {made}"
    return Source(
        name=name,
        frame=pd.DataFrame(),
        pixels=None,
        roles=None,
        fingerprint=hashlib.sha256(content.encode()).hexdigest(),
        task=task,
        dataset=dataset,
    )


def _refuse_loss(task: Task, dataset: Dataset) -> None:
    """Refuse a loss that is a sum or reads weights; what does not fit is refused where it runs."""
    own, rows = in_evaluation(task).model, slice(0, TRIED)
    device = next((leaf.device for leaf in own.parameters()), torch.device("cpu"))
    try:
        with torch.no_grad(), torch.random.fork_rng():
            outputs = own(dataset.x[rows].clone().to(device))
    except REFUSALS:
        return
    targets = dataset.y[rows].to(device)
    if not isinstance(outputs, torch.Tensor) or len(outputs) == len(targets):
        refuse_summed(task.mean_loss, outputs, targets)
        refuse_penalty(task.mean_loss, outputs, targets)


def unchanged(spec: Spec, wanted: str) -> Source:
    """Open the data of a ``Spec`` again, where their fingerprint is known.

    Raises:
        InputError: the data changed.
    """
    source = source_of(spec)
    if source.fingerprint != wanted:
        forget()  # a process that runs cells of several grids may hold what an earlier one read
        source = source_of(spec)
    if source.fingerprint != wanted:
        raise InputError(
            f"data {spec.task or spec.data!r} changed since the run began; start it again"
        )
    return source


def text_of(spec: Spec) -> TextFormat | None:
    """Return how the text of a table is read; None where the settings leave it open."""
    return TextFormat.of(
        spec.sep,
        spec.encoding,
        decimal=spec.decimal,
        sheet=spec.sheet,
        missing=spec.missing,
        keep_na=spec.keep_na,
    )


def forget() -> None:
    """Drop the data that this process has read, so that they are read again."""
    _opened.cache_clear()
    _from_task.cache_clear()


@functools.cache
def _opened(
    name: str,
    side: int,
    text: TextFormat | None,
    allow_outside: bool,
    place: tuple[str, int, int] | None,
) -> Source:
    return open_data(name, side=side, text=text, allow_outside=allow_outside)


def _place(name: str) -> tuple[str, int, int] | None:
    """Where a file or folder lies, its time and size: a name can mean other data later on."""
    path = Path(name)
    try:
        stat = path.stat()
    except (OSError, ValueError):
        return None
    return str(path.resolve()), stat.st_mtime_ns, stat.st_size


@functools.lru_cache(maxsize=4)
def _from_task(spec: str, seed: int) -> Source:
    return task_source(*load_task(spec, seed=seed), name=spec)
