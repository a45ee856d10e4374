"""The assessment of a reconstruction for an audit card."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from leakgauge.inversion.methods import TOKENS, reported_traits
from leakgauge.inversion.metrics.table import METRICS
from leakgauge.inversion.report.levels import by_nearness, verdict_of
from leakgauge.inversion.run.kept import read_facts
from leakgauge.inversion.words import KNOWN
from leakgauge.report.grouping import Test, group_tests
from leakgauge.runs.assessment import Assessment, Baseline, Finding, Threat, Worst
from leakgauge.runs.question import Answer

NO_SMALLEST = "the level compares the figure with a guess that uses no gradient"
LIMITS = (
    "A record that was not rebuilt here may be rebuilt by a stronger attack, or from more updates.",
    "Few records are attacked, so intervals are wide; the attacked ones are not the whole data.",
    "A record that is unlike the truth can still give values or an identity away.",
)


def assessment(answer: Answer, folder: Path) -> Assessment:
    """Return the threat, the attempts and the record that came nearest to the truth.

    Args:
        answer: answer to the question.
        folder: run folder that holds the facts.

    Raises:
        InputError: the facts are damaged.
    """
    tests = group_tests(answer.measurements)
    facts = read_facts(folder, len(tests))
    if answer.run.settings.get("update") is not None:
        return Assessment(
            threat=_threat(answer, tests),
            findings=[],
            no_worst="the true records behind a real update are not known",
            limits=[*LIMITS, "Without the true records nothing can be scored."],
        )
    worst = _worst(tests, facts, redacted=bool(answer.run.settings.get("redact")))
    return Assessment(
        threat=_threat(answer, tests),
        findings=_findings(tests),
        baselines=_baselines(tests),
        worst=worst,
        no_worst="" if worst else "no attempt was scored record by record",
        limits=LIMITS,
    )


def _findings(tests: Sequence[Test]) -> list[Finding]:
    """Return the attempts; the nearest one for each defense and knowledge leads."""
    leads: dict[tuple[str, str], Test] = {}
    for test, _ in by_nearness(list(tests)):
        leads.setdefault((test.defense, test.knowledge), test)
    found = []
    for test in tests:
        verdict = verdict_of(test)
        if verdict.figure is not None:
            first = leads[test.defense, test.knowledge] is test
            found.append(
                Finding(
                    verdict.figure, verdict.words, verdict.level, first, no_smallest=NO_SMALLEST
                )
            )
    return found


def _baselines(tests: Sequence[Test]) -> list[Baseline]:
    """Return the score of a guess that uses no gradient."""
    figures = [one for test in tests if (one := verdict_of(test).figure) is not None]
    return [
        Baseline("a guess without gradients", one.chance, one.game, METRICS[one.metric].label)
        for one in figures[:1]
    ]


def _worst(
    tests: Sequence[Test], facts: Sequence[Mapping[str, Any]], *, redacted: bool
) -> list[Worst]:
    """Return the best rebuilt record of the nearest attempt against each defense."""
    found = []
    of_test = {id(test): one for test, one in zip(tests, facts, strict=True)}
    seen = set()
    for test, verdict in by_nearness(list(tests)):
        if verdict.figure is None or test.defense in seen:
            continue
        seen.add(test.defense)
        name = verdict.figure.metric
        each = [one.get(name) for one in of_test[id(test)].get("per_image", ())]
        known = [(value, at) for at, value in enumerate(each, start=1) if value is not None]
        if known:
            value, at = max(known, key=lambda one: (one[0], -one[1]))
            label = "one of the attacked records" if redacted else f"attacked record {at}"
            found.append(Worst("record", label, METRICS[name].label, float(value), test.who))
    return found


def _threat(answer: Answer, tests: Sequence[Test]) -> Threat:
    settings = answer.run.settings
    labels = settings.get("labels")
    methods = dict.fromkeys(test.adversary for test in tests)
    is_text = any(reported_traits(name).needs == TOKENS for name in methods)
    infers = [] if labels == KNOWN or is_text else ["It infers the labels from the update."]
    does = [f"`{name}` {reported_traits(name).does}" for name in methods]
    return Threat(
        goal="to rebuild the records of a client from the update that it sends",
        knows=[
            "The update, the model and its parameters at the start, and the loss.",
            "The number of records, local steps and epochs, and the local learning rate.",
            "The vocabulary of the model, and the largest length of a text."
            if is_text
            else "The range of each feature, and how features are encoded.",
            *(["The labels, which are granted to it."] if labels == KNOWN else []),
        ],
        does=[*infers, *does],
        lacks=["The private records."],
        nist=["NISTAML.032 reconstruction"],
        edpb=["reconstruction", "model inversion"],
    )
