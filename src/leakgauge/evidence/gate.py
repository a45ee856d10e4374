"""The decision of the rules of a build: its figures, its exit code, and its file."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from leakgauge.core.files import write_text
from leakgauge.evidence.rule import DIFFERENCE, VALUE
from leakgauge.report.wording import short
from leakgauge.results.measurements import Measurement

GATE_FILE = "gate.json"
COMPARED_FILE = "compared.json"
"""The decision of rules on a run, and that of rules on the run and a reference."""

FAILED, UNMEASURED = 3, 2
"""Exit codes of a failed rule or promise, and of a rule without figures."""

PASS, TRIPPED, TOO_LITTLE = "pass", "tripped", "too little data"
NO_INTERVAL, NOT_VALID, NOT_MEASURED = "no interval", "not valid", "not measured"

GateDecision = Literal["pass", "fail", "undecided"]


@dataclass(frozen=True)
class FigureOutcome:
    """A figure, and whether it passes a rule.

    Attributes:
        question: name of its question; with a number, if the run has several secrets.
        ask: the word of ``--ask``; empty if nothing was measured.
        cell: settings in which the cells of a grid differ; empty in an audit.
        secret: name of the secret.
        defense: defense of the training; ``"none"`` without one.
        knowledge: knowledge of the adversary.
        adversary: name of the adversary.
        metric: name of the metric.
        round: round of the figure; ``"headline"`` or ``"accumulated"`` for all of them.
        end: compared end: ``"high"``, ``"low"`` or ``"value"``.
        value: value of the figure; None, as the next five, if nothing was measured.
        low: lower end of its interval.
        high: upper end of its interval.
        n: number of trials or records.
        chance: value where nothing leaks.
        smallest_detectable: the smallest leak that the test sees with 80 % power; None if the rule
            is not about a leak.
        threshold: threshold of the rule.
        outcome: ``"pass"``, or why the rule does not pass: ``"tripped"``, ``"too little data"``,
            ``"no interval"``, ``"not valid"`` or ``"not measured"``.
        why: the outcome in a sentence.
        side: ``"difference"``, ``"before"`` or ``"after"`` where two runs are compared; a
            difference has its value and interval in place of the figure's.
        before: for a difference, value, low and high of the reference; else None.
        after: the same of the new run.
    """

    question: str
    ask: str
    cell: str
    secret: str
    defense: str
    knowledge: str
    adversary: str
    metric: str
    round: int | str
    end: str
    value: float | None
    low: float | None
    high: float | None
    n: int | None
    chance: float | None
    smallest_detectable: float | None
    threshold: float
    outcome: str
    why: str
    side: str = ""
    before: Mapping[str, float] | None = None
    after: Mapping[str, float] | None = None

    @property
    def named(self) -> str:
        """The metric in words, with the side of two runs.

        >>> parts = dict.fromkeys(FigureOutcome.__dataclass_fields__)
        >>> FigureOutcome(**{**parts, "metric": "auroc", "side": "difference"}).named
        'the difference of auroc'
        """
        if self.side == DIFFERENCE:
            return f"the difference of {self.metric}"
        return f"{self.metric} {self.side}" if self.side else self.metric


@dataclass(frozen=True)
class RuleOutcome:
    """The outcome of a rule.

    Attributes:
        rule: its text.
        figures: checked figures; at least one.
    """

    rule: str
    figures: Sequence[FigureOutcome]

    @property
    def outcome(self) -> GateDecision:
        """Whether the rule passes; any figure that does not pass decides."""
        found = {one.outcome for one in self.figures}
        if found - {PASS, NOT_MEASURED}:
            return "fail"
        return "undecided" if NOT_MEASURED in found or not found else "pass"


@dataclass(frozen=True)
class BrokenPromise:
    """A promise that does not hold.

    Attributes:
        question: name of the question.
        ask: the word of ``--ask``.
        cell: settings in which the cells of a grid differ.
        why: the verdict in words.
    """

    question: str
    ask: str
    cell: str
    why: str


@dataclass(frozen=True)
class Gate:
    """The decision on a run.

    Attributes:
        rules: outcome of each rule.
        broken: promises that do not hold; they fail a build without any rule.
        against: name of the reference, if the rules compare with one.
    """

    rules: Sequence[RuleOutcome] = ()
    broken: Sequence[BrokenPromise] = ()
    against: str = ""

    @property
    def decision(self) -> GateDecision:
        """``"fail"`` if a rule or a promise fails, else ``"undecided"`` if a figure is missing."""
        if self.broken:
            return "fail"
        found = {one.outcome for one in self.rules}
        return "fail" if "fail" in found else "undecided" if "undecided" in found else "pass"

    @property
    def passed(self) -> bool:
        """Whether every rule passes and no promise is broken."""
        return self.decision == "pass"

    @property
    def exit_code(self) -> int:
        """0 for a pass, 3 for a failure, 2 for a rule without figures."""
        return {"pass": 0, "fail": FAILED, "undecided": UNMEASURED}[self.decision]

    @property
    def figures(self) -> list[FigureOutcome]:
        """The figures of all rules."""
        return [figure for one in self.rules for figure in one.figures]

    def joined(self, other: "Gate") -> "Gate":
        """Return the decision of both: their rules and broken promises."""
        return replace(
            other,
            rules=[*self.rules, *other.rules],
            broken=[*self.broken, *other.broken],
            against=self.against or other.against,
        )

    def as_json(self) -> dict[str, Any]:
        """Return decision, rules, figures and broken promises as plain values."""
        return {
            "decision": self.decision,
            **({"against": self.against} if self.against else {}),
            "rules": [
                {
                    "rule": one.rule,
                    "outcome": one.outcome,
                    "figures": [_plain(figure) for figure in one.figures],
                }
                for one in self.rules
            ],
            "broken": [asdict(one) for one in self.broken],
        }

    def __str__(self) -> str:
        lines = [
            f"{one.rule}: {one.outcome} ({'; '.join(dict.fromkeys(f.why for f in one.figures))})"
            for one in self.rules
        ]
        return "\n".join([*lines, *(f"{one.ask}: {one.why}" for one in self.broken)])


def _plain(figure: FigureOutcome) -> dict[str, Any]:
    values = asdict(figure)
    of_two_runs = ("side", "before", "after")
    return values if figure.side else {k: v for k, v in values.items() if k not in of_two_runs}


def write_gate(folder: Path, gate: Gate, name: str = GATE_FILE) -> None:
    """Write ``gate.json``; a gate without rules and broken promises removes an older one."""
    path = folder / name
    if gate.rules or gate.broken:
        write_text(path, json.dumps(gate.as_json(), indent=2, allow_nan=False) + "\n")
    else:
        path.unlink(missing_ok=True)


def figure_in_words(one: FigureOutcome | Measurement) -> Mapping[str, str]:
    """Return value and interval of a figure as text; empty if nothing was measured."""
    estimate = one.estimate if isinstance(one, Measurement) else one
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return {VALUE: "", "interval": ""}
    plus = isinstance(one, FigureOutcome) and one.side == DIFFERENCE
    value, low, high = (
        f"{'+' if plus and each > 0 else ''}{signed(each)}"
        for each in (estimate.value, estimate.low, estimate.high)
    )
    return {VALUE: value, "interval": f"{low} to {high}"}


def signed(value: float) -> str:
    """Return a figure with three digits, with its sign where it is negative.

    >>> signed(-0.0123), signed(0.5)
    ('\u22120.0123', '0.5')
    """
    return short(value) if value >= 0 else f"\u2212{short(-value)}"
