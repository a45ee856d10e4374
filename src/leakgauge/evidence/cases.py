"""The cases of a run: the figures of a question under one defense, and failed rules."""

from collections.abc import Sequence
from dataclasses import dataclass

from leakgauge.evidence.counted import counted
from leakgauge.evidence.gate import (
    NOT_MEASURED,
    PASS,
    BrokenPromise,
    FigureOutcome,
    Gate,
    figure_in_words,
)
from leakgauge.evidence.parts import RunPart, RunParts
from leakgauge.report.grouping import UNDEFENDED
from leakgauge.results.measurements import Measurement


@dataclass(frozen=True)
class Case:
    """The figures of one question under one defense.

    Attributes:
        part: question or cell of the case.
        ask: the word of ``--ask``.
        secret: name of the secret.
        defense: ``"none"`` without one.
        figures: headline figures of the metrics in tables.
        failed: figures that do not pass, each with its rule.
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
    """Return figures that were not measured, each with its rule; they belong to no case."""
    return [(rule.rule, one) for rule in gate.rules for one in rule.figures if not one.ask]


def why_not(gate: Gate) -> str:
    """Return why a gate does not pass: a line for each figure and promise that does not."""
    lines = [
        sentence_of(rule.rule, one)
        for rule in gate.rules
        for one in rule.figures
        if one.outcome != PASS
    ]
    return "\n".join([*lines, *(f"{one.ask}: {one.why}" for one in gate.broken)])


def sentence_of(rule: str, one: FigureOutcome) -> str:
    """Return a figure that does not pass, with its interval, the rule, and the reason."""
    about = name_of(one.ask or one.question, one.secret, one.defense, one.knowledge, one.cell)
    if one.outcome == NOT_MEASURED:
        where = f"{about}: " if about else ""
        return f"{where}the rule '{rule}' could not be evaluated: {one.why}."
    words = figure_in_words(one)
    interval = f" is {words['value']} (95 % interval {words['interval']})"
    told = interval if words["value"] else " was not compared"
    return f"{about}: {one.named}{told}. The rule '{rule}' fails: {one.why}."


def name_of(ask: str, secret: str, defense: str, knowledge: str = "", cell: str = "") -> str:
    """Return a name for a measurement, in a few words.

    >>> name_of("property", "sex", "prune:rate=0.9", "adaptive")
    'property of sex, prune:rate=0.9, adaptive'
    >>> name_of("property", "sex", "none", cell="seed 1")
    'property of sex, no defense (seed 1)'
    """
    about = f"{ask} of {secret}" if secret else ask
    undefended = defense == UNDEFENDED
    words = ["no defense"] if undefended else [word for word in (defense, knowledge) if word]
    name = ", ".join([about, *words])
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
