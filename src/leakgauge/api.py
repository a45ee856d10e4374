"""The Python interface: ``load`` data, ``audit`` them, ``compare`` two audits."""

import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from leakgauge.core.checks import InputError, require
from leakgauge.core.types import Dataset, Task
from leakgauge.data.source import Source, array_source, frame_source, open_data
from leakgauge.data.text_tables import TextFormat
from leakgauge.result import Result, run_of

if TYPE_CHECKING:
    from leakgauge.report.differences.compared import Differences
    from leakgauge.runs.question import Progress, Question

AnyDefense = Any
"""A settings object of ``leakgauge.defenses``, or its text, such as ``"prune:rate=0.99"``."""


@dataclass(frozen=True)
class Data:
    """Data with the roles of their columns, as returned by ``load``.

    Attributes:
        source: the records.
        roles: the given ones of label, secret, group, drop, bins and drop_missing.
    """

    source: Source
    roles: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return a summary without rows, as a notebook shows it."""
        roles = "".join(f", {name} {value!r}" for name, value in self.roles.items())
        return f"<Data: {self.source!r}{roles}>"


def load(
    data: Any,
    labels: Any = None,
    *,
    label: str | None = None,
    secret: str | None = None,
    group: str | None = None,
    drop: Sequence[str] = (),
    bins: Mapping[str, int] | None = None,
    drop_missing: bool = False,
    sheet: str | None = None,
    decimal: str | None = None,
    missing: Sequence[str] = (),
    keep_na: bool = False,
    secrets: Mapping[str, Any] | None = None,
    users: Any = None,
) -> Data:
    """Return data for ``audit``.

    Args:
        data: a path (table, folder of images, ``.npz``), the name of a dataset, a DataFrame, an
            array of records ``[n, d]`` or images ``[n, h, w, c]`` uint8, or a ``Task``.
        labels: labels ``[n]`` of an array, or the ``Dataset`` of a ``Task``; its targets are not
            standardised.
        label: column that the model predicts.
        secret: column to protect.
        group: column that names the user of each row.
        drop: columns to leave out.
        bins: number of ranges into which to cut a numeric label or secret.
        drop_missing: whether to leave out rows without label, secret or group.
        sheet: for a workbook, the sheet by name or number.
        decimal: for a file, the decimal mark of numbers in text, if both fit.
        missing: for a file, words that count as missing in every column.
        keep_na: for a file, whether NA, null and such words stay values among numbers, too.
        secrets: for an array, columns ``[n]`` by name, which are not features.
        users: for an array, the user of each record ``[n]``.

    Raises:
        InputError: the data cannot be read, or their parts are inconsistent.
    """
    given = {
        "label": label,
        "secret": secret,
        "group": group,
        "drop": tuple(drop),
        "bins": dict(bins or {}),
        "drop_missing": drop_missing,
    }
    how = {"sheet": sheet, "decimal": decimal, "missing": tuple(missing), "keep_na": keep_na}
    text = TextFormat.of(None, None, **how)
    if isinstance(data, np.ndarray) or (
        type(data).__module__.startswith("torch") and not isinstance(data, Task)
    ):
        require(labels is not None, "an array of records needs labels; give load(x, y, ...)")
        require(text is None, f"{text and text.given} is about a file; leave it out")
        source = array_source(data, labels, secrets or {}, users)
        names = {"label": "label", "secret": secret or next(iter(secrets or {}), None)}
        given |= names | ({"group": "user"} if users is not None else {})
    else:
        source = _source(data, labels, text)
    return Data(source, {name: value for name, value in given.items() if value})


def audit(
    data: Any,
    ask: str | Sequence[str] = (),
    *,
    defenses: Sequence[AnyDefense] = (),
    adversaries: Sequence[str] = (),
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    workers: int | None = 1,
    progress: "Progress | None" = None,
    controls: bool = False,
    **options: Any,
) -> Result:
    """Measure what the gradients of training on ``data`` give away.

    Args:
        data: result of ``load``, or anything that ``load`` accepts.
        ask: words of ``--ask``, or ``"all"`` for everything that the data allow.
        defenses: defenses to compare with training without one.
        adversaries: names as for ``--adversary``; the papers' adversaries by default.
        seed: seed of all randomness.
        settings: settings of single questions by ``"question.name"``, such as
            ``{"reconstruction.images": 16}``.
        out: folder of the run, which a repeated call resumes; None uses a temporary folder.
        workers: number of processes; None chooses a number from the amount of work.
        progress: receiver of progress, notes and warnings.
        controls: whether to run controls for each question: a placebo, which must stay at chance,
            and a planted leak, which must be found.
        options: settings for every question that has them, such as ``rounds=3`` or ``loss="mse"``.
            An ``optimizer`` is text as for ``--optimizer``, or a class or function of a module that
            makes a ``torch.optim.Optimizer`` of the parameters.

    Raises:
        InputError: a word or a setting is wrong, or nothing could be measured.
    """
    from leakgauge.catalog import questions
    from leakgauge.evidence.controls import run_controls
    from leakgauge.runs.asking import ALL, AuditRequest, all_allowed, asked_of
    from leakgauge.runs.audit import describe, prepare_all, run_audit
    from leakgauge.runs.page import sections_of
    from leakgauge.runs.question import Silent
    from leakgauge.training.catalog import text_of

    require(
        not isinstance(ask, Dataset),
        "ask is a Dataset; expected words such as 'property'; give audit(load(task, dataset), ...)",
    )
    loaded = data if isinstance(data, Data) else load(data)
    words = (ask,) if isinstance(ask, str) else tuple(ask)
    given = {"seed": seed, **{name: _plain(one) for name, one in options.items()}}
    if "optimizer" in given:
        given["optimizer"] = text_of(given["optimizer"])
    if defenses:
        given["defense"] = tuple(str(getattr(one, "name", one)) for one in _several(defenses))
    given |= {"adversary": tuple(_several(adversaries))} if adversaries else {}
    known = questions()
    wanted = AuditRequest(words, given, _sets(settings or {}, known), loaded.roles)
    notes: dict[str, str] = {}
    if ALL in words:
        _, prepared, notes = all_allowed(wanted, known, loaded.source)
    else:
        prepared = prepare_all(asked_of(wanted, known), source=loaded.source)
    lines = [f"`{word}`: {reason}" for word, reason in notes.items()]
    folder = Path(tempfile.mkdtemp(prefix="leakgauge-")) if out is None else Path(out)
    try:
        description, watch = describe("audit", prepared, notes=lines), progress or Silent()
        run = run_audit(folder, description, prepared, progress=watch, workers=workers)
        answered = {name: prepared[name] for name in run.answers} if controls else {}
        checked = run_controls(folder, answered, progress=watch, workers=workers)
        result = Result(run, tuple(sections_of(run, known)), tuple(checked))
    except BaseException:
        if out is None:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    if out is None:
        weakref.finalize(result, shutil.rmtree, folder, ignore_errors=True)
    return result


def compare(
    before: Result | str | Path,
    after: Result | str | Path,
    *,
    defenses: Sequence[AnyDefense] = (),
    against: AnyDefense = "",
) -> "Differences":
    """Return the differences of two finished audits, after minus before, with intervals.

    Args:
        before: a result of ``audit``, or the folder of a finished audit.
        after: the same for the audit after a change, or with a defense.
        defenses: defenses of the second audit to compare; empty for all.
        against: defense of the first audit to compare with; empty takes the same defense, or none
            if the first audit lacks it.

    Raises:
        InputError: an audit is not finished, a defense is unknown, or no figure is in both audits.
    """
    from leakgauge.catalog import questions
    from leakgauge.runs.differences import compare_runs

    one, other = run_of(before), run_of(after)
    names = [str(getattr(each, "name", each)) for each in (*_several(defenses), against)]
    return compare_runs(one, other, questions(), defenses=names[:-1], against=names[-1])


def _source(data: Any, dataset: Any, text: TextFormat | None) -> Source:
    from leakgauge.runs.sources import task_source

    is_path = isinstance(data, str | Path)
    require(is_path or text is None, f"{text and text.given} is about a file; leave it out")
    if isinstance(data, Source):
        return data
    if isinstance(data, Task):
        if not isinstance(dataset, Dataset):
            raise InputError(
                f"a Task needs its records as a Dataset, got {type(dataset).__name__}; "
                "give load(task, dataset)"
            )
        return task_source(data, dataset)
    if isinstance(data, pd.DataFrame):
        return frame_source(data)
    if isinstance(data, str | Path):
        return open_data(data, text=text)
    raise InputError(
        f"data are {type(data).__name__}; expected a path, the name of a dataset, a DataFrame, "
        "an array with labels, or a Task with a Dataset"
    )


def _sets(
    settings: Mapping[str, Any], known: Mapping[str, "Question"]
) -> dict[tuple[str, str], Any]:
    from leakgauge.runs.asking import setting_of

    sets = {}
    for text, value in settings.items():
        require("." in text, f"settings has {text!r}; expected 'question.name', else an option")
        owner, one = setting_of(text, known, f"settings has {text!r}")
        sets[owner.name, one.name] = _plain(value)
    return sets


def _several(values: Any) -> Sequence[Any]:
    return values if isinstance(values, list | tuple) else (values,)


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
