"""Which questions a run asked, and why it did not ask the others."""

import re
from collections.abc import Iterator, Mapping, Sequence

from leakgauge.evidence.card_model import Covered
from leakgauge.runs.audit import UNFINISHED, AuditRun
from leakgauge.runs.question import Question, answering

NO_TEST = "leakgauge has no test of it"
OUT_OF_SCOPE = {
    "exfiltration": "records that leave by another way than the training",
    "regurgitation": "a model that prints its training data",
    "model extraction": "a copy of the model from its answers",
}
"""Attacks that auditors ask about and leakgauge does not play."""


def coverage(audit: AuditRun, questions: Mapping[str, Question]) -> list[Covered]:
    """Return one line for each question that leakgauge knows, and for each that it cannot ask."""
    lines = [
        _covered(audit, word, about, keys)
        for name, question in questions.items()
        for keys in [[key for key in audit.description.cells if _name(key, questions) == name]]
        for word, about in question.asks.items()
    ]
    return [
        *lines,
        *(
            Covered(ask=word, about=about, status="out of scope", reason=NO_TEST)
            for word, about in OUT_OF_SCOPE.items()
        ),
    ]


def _name(key: str, questions: Mapping[str, Question]) -> str:
    question = answering(key, questions)
    if question is None or key in questions:
        return key
    return key.rpartition("-")[0]


def _covered(audit: AuditRun, word: str, about: str, keys: Sequence[str]) -> Covered:
    asked = [key for key in keys if word in _words(audit, key)]
    if not asked:
        return _not_asked(audit, word, about)
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
    """What a room says is missing: of this word as a whole, and other parts."""
    texts = [text for key in keys for text in audit.answers[key].missing]
    own = [text.removeprefix(f"{word}: ") for text in texts if text.startswith(f"{word}: ")]
    others = {one for key in keys for one in _words(audit, key)}
    rest = [text for text in texts if text.partition(": ")[0] not in others]
    return own, rest


def _not_asked(audit: AuditRun, word: str, about: str) -> Covered:
    reasons = dict(_refusals(audit.description.notes))
    if word in reasons:
        reason = f"the data do not allow it: {reasons[word]}"
        return Covered(ask=word, about=about, status="out of scope", reason=reason)
    reason = f"leakgauge audit asks it with --ask {word}"
    return Covered(ask=word, about=about, status="not asked", reason=reason)


def _refusals(notes: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The words that the data did not allow, with the reasons."""
    for note in notes:
        found = re.match(r"`([^`]+)`: (.*)", note, re.DOTALL)
        if found:
            yield found[1], found[2]
