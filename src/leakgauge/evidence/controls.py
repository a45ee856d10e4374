"""Runs the controls of an audit, keeps them next to its cells, and evaluates them.

A placebo has no leak: a sound test stays at chance. A planted leak is obvious: a test that works
finds it. A control is a separate cell, ``cells/NAME-placebo``; ``controls.yaml`` lists all of them,
with the change or the reason why one does not exist. Figures of the audit do not depend on them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from leakgauge.core.checks import InputError, require
from leakgauge.core.files import read_yaml, write_yaml
from leakgauge.core.versions import versions
from leakgauge.report.facts import plain_interval
from leakgauge.results.measurements import Measurement
from leakgauge.runs.assessment import Controls, Variant
from leakgauge.runs.audit import AuditQuestion
from leakgauge.runs.question import Progress, Question, answering
from leakgauge.runs.spec import identifying
from leakgauge.runs.store import Description, Store, key_of

ControlKind = Literal["placebo", "planted"]
KINDS: tuple[ControlKind, ...] = ("placebo", "planted")
CONTROLS_FILE = "controls.yaml"
BELOW = "below"
"""The level of a figure so far below chance that its test is not valid."""

UNKNOWN = "its package does not say how to make one"
UNFINISHED = "it was asked for and is not finished; repeat the command of the run"


@dataclass(frozen=True)
class ControlOutcome:
    """The figure of a control.

    Attributes:
        figure: the measurement.
        passed: whether a placebo is at chance, or a planted leak is found.
        open_end: whether the interval has no upper end.
    """

    figure: Measurement
    passed: bool
    open_end: bool = False


@dataclass(frozen=True)
class Control:
    """One control of one question.

    Attributes:
        question: the key of the question's answer.
        kind: ``"placebo"`` or ``"planted"``.
        changed: description of the change; empty without a control.
        outcomes: its figures; empty without a control.
        reason: reason why the control does not exist.
    """

    question: str
    kind: ControlKind
    changed: str = ""
    outcomes: tuple[ControlOutcome, ...] = ()
    reason: str = ""

    @property
    def passed(self) -> bool | None:
        """Whether all figures are as expected; None without a control."""
        return all(one.passed for one in self.outcomes) if self.outcomes else None


def run_controls(
    folder: Path, prepared: Mapping[str, AuditQuestion], *, progress: Progress, workers: int | None
) -> list[Control]:
    """Run the controls of every question; finished ones are read back from the folder.

    Args:
        folder: folder of the audit, locked by the caller.
        prepared: questions of the audit.
        progress: receives progress.
        workers: as for ``Question.run``.

    Raises:
        KeyboardInterrupt: the user stopped it; finished controls are kept.
    """
    store, listed, found = Store(folder), _listed(folder), []
    for name in prepared:  # a killed run leaves controls marked as unfinished
        unfinished: dict[str, dict[str, str]] = {kind: {"reason": UNFINISHED} for kind in KINDS}
        listed[name] = unfinished | listed.get(name, {})
    write_yaml(folder / CONTROLS_FILE, listed)
    for name, one in prepared.items():
        made = _controls_of(one)
        for kind in KINDS:
            control, entry = _run(store, name, kind, getattr(made, kind), one, progress, workers)
            found.append(control)
            listed[name][kind] = entry
            write_yaml(folder / CONTROLS_FILE, listed)
    return found


def read_controls(
    folder: Path, description: Description, questions: Mapping[str, Question]
) -> list[Control]:
    """Return the controls of a folder; none if they were not requested.

    Raises:
        InputError: a cell is damaged, or belongs to another run.
    """
    store, found = Store(folder), []
    for name, entries in _listed(folder).items():
        question = answering(name, questions)
        if name not in description.cells or question is None:
            continue
        found += [
            _read(store, question, name, kind, entries[kind], description)
            for kind in KINDS
            if kind in entries
        ]
    return found


def cell_of(name: str, kind: ControlKind) -> str:
    """Return the key of a control's cell.

    >>> cell_of("name", "placebo")
    'name-placebo'
    """
    return f"{name}-{kind}"


def failures(controls: Sequence[Control]) -> list[str]:
    """Return a warning for each control that failed."""
    says = {
        "placebo": "the placebo of {name!r} failed: it is not at chance ({figures}). One of 20 "
        "sound placebos does so; repeat with another --seed. If it fails again, do not trust "
        "the figures of {name!r}",
        "planted": "the planted leak of {name!r} was not found ({figures}); with these settings "
        "the test is too weak to see an obvious leak: use more trials or rounds",
    }
    return [
        says[one.kind].format(name=one.question, figures=figures_of(one))
        for one in controls
        if one.passed is False
    ]


OUTCOMES: Mapping[tuple[ControlKind, bool], str] = {
    ("placebo", True): "at chance, as it must be",
    ("placebo", False): "FAILED: not at chance",
    ("planted", True): "found, as it must be",
    ("planted", False): "FAILED: not found",
}


def outcome_of(control: Control) -> str:
    """Return in a few words whether a control passed."""
    return "no such control" if control.passed is None else OUTCOMES[control.kind, control.passed]


def plain_control(control: Control) -> dict[str, Any]:
    """Return a control as plain values, for JSON."""
    return {
        "question": control.question,
        "kind": control.kind,
        "passed": control.passed,
        "outcome": outcome_of(control),
        "changed": control.changed,
        "reason": control.reason,
        "figures": [
            {
                "ask": one.figure.game,
                "adversary": one.figure.adversary,
                "metric": one.figure.metric,
                **plain_interval(one.figure.estimate),
                **({"high": None} if one.open_end else {}),
                "n": one.figure.estimate.n,
                "chance": one.figure.chance,
                "passed": one.passed,
            }
            for one in control.outcomes
        ],
    }


def figures_of(control: Control) -> str:
    """Return the figures of a control in a few words."""
    return "; ".join(
        f"{one.figure.metric} {one.figure.estimate.value:.3f}, interval "
        f"{one.figure.estimate.low:.3f} to "
        f"{'no upper end' if one.open_end else format(one.figure.estimate.high, '.3f')}, chance "
        f"{one.figure.chance:.3f}"
        for one in control.outcomes
    )


def _controls_of(one: AuditQuestion) -> Controls:
    make: Callable[[Any], Controls] | None = getattr(one.question, "controls", None)
    if make is None:  # a package's question without controls
        return Controls(UNKNOWN, UNKNOWN)
    try:
        return make(one.prepared)
    except InputError as error:
        return Controls(str(error), str(error))


def _run(
    store: Store,
    name: str,
    kind: ControlKind,
    variant: Variant | str,
    one: AuditQuestion,
    progress: Progress,
    workers: int | None,
) -> tuple[Control, dict[str, str]]:
    """Run a control; return it and its entry of ``controls.yaml``."""
    if isinstance(variant, str):
        return Control(name, kind, reason=variant), {"reason": variant}
    key, identity = cell_of(name, kind), _identity(name, kind, variant, one)
    try:
        with store.alone(key):
            answer = store.kept(key, identity, progress.note)
            if answer is None:
                work = store.work(key, progress.note, identity=identity)
                quiet = _Quiet(progress, f"{name}, {kind}")
                prepared = one.question.prepare(variant.spec, variant.source)
                answer = one.question.run(prepared, work, quiet, workers=workers)
                if answer.stopped:
                    raise KeyboardInterrupt
                store.keep(key, identity, answer)
    except InputError as error:
        reason = f"refused: {error}"
        return Control(name, kind, reason=reason), {"reason": reason}
    outcomes = _outcomes(one.question, kind, answer, store.folder(key))
    return Control(name, kind, variant.changed, outcomes), {"changed": variant.changed}


def _read(
    store: Store,
    question: Question,
    name: str,
    kind: ControlKind,
    entry: Mapping[str, str],
    description: Description,
) -> Control:
    if "reason" in entry:
        return Control(name, kind, reason=entry["reason"])
    key = cell_of(name, kind)
    identity, answer = store.read(key)
    require(
        identity.get("of") == description.identities.get(name),
        f"{str(store.folder(key))!r} belongs to another run; repeat the command of the run with "
        "--controls to make it anew",
    )
    outcomes = _outcomes(question, kind, answer, store.folder(key))
    return Control(name, kind, entry["changed"], outcomes)


def _outcomes(
    question: Question, kind: ControlKind, answer: Any, folder: Path
) -> tuple[ControlOutcome, ...]:
    """Return the figures that the answer stands on; the room finds those below chance."""
    found = question.assessment(answer, folder).findings
    return tuple(
        ControlOutcome(
            one.figure,
            one.figure.estimate.low > one.figure.chance
            if kind == "planted"
            else one.figure.estimate.low <= one.figure.chance and one.level != BELOW,
            one.open_end,
        )
        for one in found
        if one.leads
    )


def _identity(name: str, kind: ControlKind, variant: Variant, one: AuditQuestion) -> dict[str, Any]:
    return {
        "question": name,
        "control": kind,
        "of": key_of(one.identity(name)),
        "settings": identifying(variant.spec),
        "fingerprint": variant.source.fingerprint,
        "versions": versions(),
    }


def _listed(folder: Path) -> dict[str, dict[str, dict[str, str]]]:
    path = folder / CONTROLS_FILE
    return read_yaml(path) if path.is_file() else {}


class _Quiet:
    """Progress of a control: its steps under its name, and no notes, which are the audit's."""

    def __init__(self, inner: Progress, name: str) -> None:
        self._inner, self._name = inner, name

    def step(self, what: str, done: int, of: int, note: str = "") -> None:
        """Report finished parts under the control's name."""
        self._inner.step(f"{self._name}: {what}", done, of, note)

    def note(self, text: str) -> None:
        """Drop a note."""

    def warn(self, text: str) -> None:
        """Drop a warning."""

    def early(self, make: Callable[[], str]) -> None:
        """Drop an early figure."""
