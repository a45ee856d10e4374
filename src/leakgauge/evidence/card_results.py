"""Makes the rows of a card from the assessments of the rooms."""

import re
from collections.abc import Iterable, Mapping, Sequence

from leakgauge.core.knowledge import ADAPTIVE
from leakgauge.evidence.card_model import (
    CardBaseline,
    CardEpsilon,
    CardExposure,
    CardFigure,
    CardRecord,
    CardRecordTest,
    CardResult,
    CardWorst,
    Covered,
    Effect,
)
from leakgauge.report.exposure import MOST, exposure_sentence
from leakgauge.report.grouping import UNDEFENDED
from leakgauge.results.exposure import NAMED, Exposure, title_of
from leakgauge.results.measurements import Estimate
from leakgauge.results.metrics import Metric, metric_named
from leakgauge.runs import assessment as room
from leakgauge.runs.audit import UNFINISHED, AuditRun
from leakgauge.runs.question import Question, answering

WITHHELD = "withheld"


def figure(one: Estimate, *, open_end: bool = False) -> CardFigure:
    """Return an estimate as a card writes it; without an upper end, ``high`` is None."""
    return CardFigure(
        value=one.value,
        low=one.low,
        high=None if open_end else one.high,
        confidence=one.confidence,
        n=one.n,
        counts=one.unit,
    )


def results(findings: Sequence[room.Finding], metrics: Mapping[str, Metric]) -> list[CardResult]:
    """Return one row for each test."""
    return [
        CardResult(
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


def baselines(given: Sequence[room.Baseline]) -> list[CardBaseline]:
    """Return one row for each baseline."""
    return [
        CardBaseline(
            ask=one.ask,
            name=one.name,
            title=one.metric,
            value=one.value,
            figure=None if one.figure is None else figure(one.figure.estimate),
        )
        for one in given
    ]


def worst(given: Sequence[room.Worst], *, redact: bool) -> list[CardWorst]:
    """Return the users or records most at risk; redacted, without their names."""
    return [
        CardWorst(
            unit="user" if one.unit == "user" else "record",
            label=WITHHELD if redact else one.label,
            title=one.metric,
            value=one.value,
            test=one.test,
            figure=None if one.estimate is None else figure(one.estimate),
        )
        for one in given
    ]


def exposure(found: Exposure, *, redact: bool) -> CardExposure:
    """Return what the tests of single records found; redacted, without row numbers."""
    titles = [title_of(one, found.tests) for one in found.tests]
    return CardExposure(
        defense=found.defense,
        says=exposure_sentence(found),
        numbering=found.numbering,
        tests=[
            CardRecordTest(
                ask=test.ask,
                secret=test.secret,
                adversary=test.adversary,
                knowledge=test.knowledge,
                versus=test.versus,
                attacked=one.attacked,
                named=one.named,
                alone=one.alone,
            )
            for test, one in zip(found.tests, found.overlaps, strict=True)
        ],
        most=[
            CardRecord(
                row=WITHHELD if redact else str(one.row),
                adjusted_p=one.adjusted,
                named_by=[
                    title
                    for title, each in zip(titles, one.figures, strict=True)
                    if each.status == NAMED
                ],
            )
            for one in found.most(MOST)
            if one.named
        ],
    )


def epsilons(given: Sequence[room.Promised]) -> list[CardEpsilon]:
    """Return one row for each claimed epsilon."""
    return [
        CardEpsilon(
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


def effects(rows: Sequence[CardResult]) -> list[Effect]:
    """Return each defense with its static and adaptive figure, undefended first.

    Among several tests that an answer stands on, the largest figure counts. Without a defense only
    the static figure exists. The result is empty unless the run has a defense and an undefended
    training.
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


def _effect(ask: str, defense: str, rows: Sequence[CardResult]) -> Effect:
    own = [one for one in rows if one.defense == defense]
    adaptive = _largest(one for one in own if one.knowledge == ADAPTIVE)
    static = _largest(one for one in own if one.knowledge != ADAPTIVE)
    title = own[0].title
    return Effect(ask=ask, defense=defense, title=title, static=static, adaptive=adaptive)


def _largest(rows: Iterable[CardResult]) -> CardFigure | None:
    return max((one.figure for one in rows), key=lambda one: one.value, default=None)


NO_TEST = "leakgauge has no test of it"
OUT_OF_SCOPE = {
    "exfiltration": "records that leave by another way than the training",
    "regurgitation": "a model that prints its training data",
    "model extraction": "a copy of the model from its answers",
}
"""Attacks that auditors ask about and leakgauge does not run."""


def coverage(audit: AuditRun, questions: Mapping[str, Question]) -> list[Covered]:
    """Return one line for each question, and for each attack out of scope."""
    cells = audit.description.cells
    lines = [
        _covered(audit, word, about, keys, question)
        for name, question in questions.items()
        for keys in [[key for key in cells if _name(key, questions) == name]]
        for word, about in question.asks.items()
    ]
    return lines + [
        Covered(ask=word, about=about, status="out of scope", reason=NO_TEST)
        for word, about in OUT_OF_SCOPE.items()
    ]


def _name(key: str, questions: Mapping[str, Question]) -> str:
    several = key not in questions and answering(key, questions) is not None
    return key.rpartition("-")[0] if several else key


def _covered(
    audit: AuditRun, word: str, about: str, keys: Sequence[str], question: Question
) -> Covered:
    asked = [key for key in keys if word in _words(audit, key)]
    if not asked:
        return _not_asked(audit, word, about, question)
    answered = [key for key in asked if key in audit.answers]
    if not answered:
        reason = audit.refused[asked[0]]
        status = "not finished" if reason == UNFINISHED else "refused"
        return Covered(ask=word, about=about, status=status, reason=reason)  # type: ignore[arg-type]
    own, rest = _missing(audit, answered, word)
    if own:
        return Covered(ask=word, about=about, status="refused", reason=own[0])
    left = [*rest, *(f"{key}: {audit.refused[key]}" for key in asked if key not in answered)]
    if left:
        return Covered(ask=word, about=about, status="executed in part", reason="; ".join(left))
    return Covered(ask=word, about=about, status="executed", reason="")


def _words(audit: AuditRun, key: str) -> Sequence[str]:
    asked = audit.description.settings.get(key, {}).get("ask") or key
    return [asked] if isinstance(asked, str) else list(asked)


def _missing(
    audit: AuditRun, keys: Sequence[str], word: str
) -> tuple[Sequence[str], Sequence[str]]:
    """Return the missing parts: this word as a whole, and other parts."""
    texts = [text for key in keys for text in audit.answers[key].missing]
    own = [text.removeprefix(f"{word}: ") for text in texts if text.startswith(f"{word}: ")]
    others = {one for key in keys for one in _words(audit, key)}
    rest = [text for text in texts if text.partition(": ")[0] not in others]
    return own, rest


def _not_asked(audit: AuditRun, word: str, about: str, question: Question) -> Covered:
    found = (re.match(r"`([^`]+)`: (.*)", note, re.DOTALL) for note in audit.description.notes)
    reasons = {one[1]: one[2] for one in found if one}
    if word in reasons:
        reason = f"data and settings do not allow it: {reasons[word]}"
        return Covered(ask=word, about=about, status="out of scope", reason=reason)
    own = f"leakgauge {question.name} asks it, about other files"
    reason = own if question.Spec.alone else f"leakgauge audit asks it with --ask {word}"
    return Covered(ask=word, about=about, status="not asked", reason=reason)
