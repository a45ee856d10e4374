"""From what a room says of its answer to the rows of a card."""

from collections.abc import Mapping, Sequence

from leakgauge.evidence.card_model import Baseline, Effect, Epsilon, Figure, Result, Worst
from leakgauge.report.grouping import UNDEFENDED
from leakgauge.results.measurements import Estimate
from leakgauge.results.metrics import Metric, metric_named
from leakgauge.runs import assessment as room

WITHHELD = "withheld"


def figure(one: Estimate, *, open_end: bool = False) -> Figure:
    """Return an estimate as a card writes it; without an upper end, ``high`` is None."""
    return Figure(
        value=one.value,
        low=one.low,
        high=None if open_end else one.high,
        confidence=one.confidence,
        n=one.n,
        counts=one.unit,
    )


def results(findings: Sequence[room.Finding], metrics: Mapping[str, Metric]) -> list[Result]:
    """Return one row for each test."""
    return [
        Result(
            ask=one.figure.game,
            secret=one.figure.secret,
            defense=one.figure.defense,
            knowledge=one.figure.knowledge,
            adversary=one.figure.adversary,
            metric=one.figure.metric,
            title=metric_named(one.figure.metric, metrics).label,
            figure=figure(one.figure.estimate, open_end=one.open_end),
            chance=one.figure.chance,
            verdict=one.verdict,
            level=one.level,
            leads=one.leads,
            smallest_detectable=one.smallest,
            no_smallest_detectable=one.no_smallest,
        )
        for one in findings
    ]


def baselines(given: Sequence[room.Baseline]) -> list[Baseline]:
    """Return one row for each baseline."""
    return [
        Baseline(
            ask=one.ask,
            name=one.name,
            title=one.metric,
            value=one.value,
            figure=None if one.figure is None else figure(one.figure.estimate),
        )
        for one in given
    ]


def worst(given: Sequence[room.Worst], *, redact: bool) -> list[Worst]:
    """Return the users or records most at risk; redacted, without who or which they are."""
    return [
        Worst(
            unit="user" if one.unit == "user" else "record",
            label=WITHHELD if redact else one.label,
            title=one.metric,
            value=one.value,
            test=one.test,
            figure=None if one.estimate is None else figure(one.estimate),
        )
        for one in given
    ]


def epsilons(given: Sequence[room.Promised]) -> list[Epsilon]:
    """Return one row for each claimed epsilon."""
    return [
        Epsilon(
            defense=one.defense,
            event=one.event,
            neighbours=one.relation,
            claimed=one.claimed,
            delta=one.delta,
            note=one.note,
            measured=None if one.measured is None else figure(one.measured, open_end=one.open_end),
            outcome=one.outcome,
        )
        for one in given
    ]


def effects(rows: Sequence[Result]) -> list[Effect]:
    """Return each defense with its static and adaptive figure, undefended first.

    Of several tests that an answer stands on, the largest figure counts. Without a defense there is
    nothing to adapt to, and its figure is the static one. Empty where no defense was played beside
    an undefended training.
    """
    leading = [one for one in rows if one.leads]
    found = []
    for ask in dict.fromkeys(one.ask for one in leading):
        own = [one for one in leading if one.ask == ask]
        names = list(dict.fromkeys(one.defense for one in own))
        if UNDEFENDED not in names or len(names) < 2:
            continue
        found += [_effect(ask, name, own) for name in names]
    return found


def _effect(ask: str, defense: str, rows: Sequence[Result]) -> Effect:
    own = [one for one in rows if one.defense == defense]
    adaptive = [one for one in own if one.knowledge == "adaptive"]
    static = [one for one in own if one.knowledge != "adaptive"]
    return Effect(
        ask=ask,
        defense=defense,
        title=own[0].title,
        static=_largest(static),
        adaptive=_largest(adaptive),
    )


def _largest(rows: Sequence[Result]) -> Figure | None:
    return max((one.figure for one in rows), key=lambda one: one.value, default=None)
