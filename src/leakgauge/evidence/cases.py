"""The cases of a run: what one question measured under one defense, with what was judged of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from leakgauge.evidence.counted import counted
from leakgauge.evidence.gate import PASS, BrokenPromise, FigureOutcome, Gate
from leakgauge.evidence.parts import RunPart, RunParts
from leakgauge.report.grouping import UNDEFENDED
from leakgauge.results.measurements import Measurement


@dataclass(frozen=True)
class Case:
    """What one question measured under one defense.

    Attributes:
        part: that it belongs to.
        ask: the word of ``--ask``.
        secret: what nobody should learn.
        defense: ``"none"`` without one.
        figures: that stand for it, of the metrics in tables.
        failed: by rule, the figures that do not pass.
        broken: promises that do not hold.
    """

    part: RunPart
    ask: str
    secret: str
    defense: str
    figures: Sequence[Measurement]
    failed: Sequence[tuple[str, FigureOutcome]]
    broken: Sequence[BrokenPromise]

    @property
    def name(self) -> str:
        """The case in a few words."""
        return name_of(self.ask, self.secret, self.defense, "", self.part.cell)


def cases_of(run: RunParts, gate: Gate) -> list[Case]:
    """Return the cases of all parts, in the order of their figures."""
    return [case for part in run.parts for case in _of_part(part, gate)]


def unmatched(gate: Gate) -> list[tuple[str, FigureOutcome]]:
    """Return by rule what was not measured, which belongs to no case."""
    return [(rule.rule, one) for rule in gate.rules for one in rule.figures if not one.ask]


def name_of(ask: str, secret: str, defense: str, knowledge: str = "", cell: str = "") -> str:
    """Return the name of what was measured, in a few words.

    >>> name_of("property", "sex", "prune:rate=0.9", "adaptive")
    'property of sex, prune:rate=0.9, adaptive'
    >>> name_of("property", "sex", "none", cell="seed 1")
    'property of sex, no defense (seed 1)'
    """
    about = f"{ask} of {secret}" if secret else ask
    undefended = defense == UNDEFENDED
    told = ["no defense"] if undefended else [word for word in (defense, knowledge) if word]
    name = ", ".join([about, *told])
    return f"{name} ({cell})" if cell else name


def _of_part(part: RunPart, gate: Gate) -> list[Case]:
    figures = [
        one
        for name, metric in part.question.metrics.items()
        if metric.tabled
        for one in counted(part.measurements, name, metric)
    ]
    tests = dict.fromkeys((part.ask_of(one), one.secret, one.defense) for one in part.measurements)
    cases = []
    said: set[str] = set()
    for ask, secret, defense in tests:
        mine = [
            one for one in figures
            if (part.ask_of(one), one.secret, one.defense) == (ask, secret, defense)
        ]  # fmt: skip
        failed = [
            (rule.rule, one)
            for rule in gate.rules
            for one in rule.figures
            if one.outcome != PASS
            and (one.question, one.cell) == (part.called, part.cell)
            and (one.ask, one.secret, one.defense) == (ask, secret, defense)
        ]
        broken = [
            one
            for one in gate.broken
            if (one.question, one.cell, one.ask) == (part.called, part.cell, ask)
            and ask not in said
        ]
        said |= {one.ask for one in broken}
        cases.append(Case(part, ask, secret, defense, mine, failed, broken))
    return cases
