"""The part of inference on an audit card."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from leakgauge.inference.catalog import ATTRIBUTE, PROPERTY, PROPORTION, USER
from leakgauge.inference.metrics import BASELINES, METRICS
from leakgauge.inference.report.games import rules
from leakgauge.inference.report.promises import promises
from leakgauge.inference.report.sentences import one_training
from leakgauge.inference.report.threat_model import known, unknown
from leakgauge.inference.report.titles import (
    adversary_tests,
    baselines_of,
    leading,
    most_at_risk_of,
)
from leakgauge.inference.report.verdict import InferenceVerdict, smallest_visible, verdict
from leakgauge.report.grouping import Test
from leakgauge.results.measurements import Measurement, Run
from leakgauge.results.scores import AUROC
from leakgauge.runs.assessment import Assessment, Baseline, Finding, Promised, Threat, Worst
from leakgauge.runs.question import Answer

NIST = {
    PROPERTY: "NISTAML.034 property inference",
    PROPORTION: "NISTAML.034 property inference",
    ATTRIBUTE: "NISTAML.032 reconstruction",
    USER: "NISTAML.033 membership inference",
}
EDPB = {
    PROPERTY: "attribute inference",
    PROPORTION: "attribute inference",
    ATTRIBUTE: "attribute inference",
    USER: "membership inference",
}
LIMITS = (
    "A low figure holds against these adversaries only; a stronger one may find more.",
    "A figure is a mean over trials; single batches and users may leak more.",
    "An epsilon is about a single record. It says nothing about a property that all records of a "
    "batch share.",
)
NO_USERS = (
    "no figure is about a single user: only user inference has one, if users have enough trials"
)


def assessment(answer: Answer, folder: Path) -> Assessment:
    """Return threat, tests, baselines and promises of an answer."""
    run, measurements = answer.run, answer.measurements
    tests = adversary_tests(measurements)
    worst = _worst(tests, measurements)
    return Assessment(
        threat=_threat(answer, tests),
        findings=_findings(answer, tests),
        baselines=[
            Baseline(BASELINES[name], one.estimate.value, game, METRICS[AUROC].label, one)
            for game, found in baselines_of(measurements).items()
            for name, one in found.items()
        ],
        worst=worst,
        no_worst="" if worst else NO_USERS,
        promises=[
            one
            for each in promises(run)
            if each.epsilon is not None
            for one in _promised(f"{each.game}: {each.defense}", each.epsilon)
        ],
        limits=[*filter(None, [one_training(run, _leading(run, tests))]), *LIMITS],
    )


def _leading(run: Run, tests: Sequence[Test]) -> list[InferenceVerdict]:
    return [one for one in (verdict(run, test) for test in leading(tests)) if one is not None]


def _threat(answer: Answer, tests: Sequence[Test]) -> Threat:
    games = list(dict.fromkeys(test.game for test in tests))
    return Threat(
        goal="to infer a secret of a training batch from the gradients that a client sends",
        knows=known(answer.run, tests),
        does=[
            "It observes the gradients and does not change the training.",
            *rules(answer.run, tests),
        ],
        lacks=unknown(answer.run),
        nist=list(dict.fromkeys(NIST[game] for game in games if game in NIST)),
        edpb=list(dict.fromkeys(EDPB[game] for game in games if game in EDPB)),
    )


def _findings(answer: Answer, tests: Sequence[Test]) -> list[Finding]:
    leads = {id(test) for test in leading(tests)}
    found = []
    for test in tests:
        answered, one = verdict(answer.run, test), test.whole(AUROC)
        if answered is not None and one is not None:
            least = smallest_visible(one.estimate, one.chance)
            found.append(Finding(one, answered.headline, answered.level, id(test) in leads, least))
    return found


def _worst(tests: Sequence[Test], measurements: Sequence[Measurement]) -> list[Worst]:
    found = [(test, most_at_risk_of(measurements, test)) for test in leading(tests)]
    return [
        Worst(
            "user",
            one.details["user"],
            METRICS[one.metric].title,
            one.estimate.value,
            f"{test.game}, {test.who}",
            one.estimate,
        )
        for test, one in found
        if one is not None
    ]


def _promised(defense: str, epsilon: Mapping[str, Any]) -> list[Promised]:
    """Return epsilon of one step and of the run, by each accountant."""
    events = {
        "one step on a full batch, exact": {"value": epsilon["step_exact"], "note": ""},
        "one step on a full batch, textbook formula": epsilon["step_classic"],
        "the whole run, records sampled": epsilon["run"],
        "the whole run, each record once a round": epsilon["run_unamplified"],
    }
    return [
        Promised(defense, event, one["value"], epsilon["delta"], epsilon["unit"], one["note"])
        for event, one in events.items()
    ]
