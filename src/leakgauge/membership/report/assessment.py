"""The assessment of membership inference for an audit card."""

from collections.abc import Sequence
from pathlib import Path

from leakgauge.membership.catalog import ABOUT
from leakgauge.membership.report.tests import attack_tests, exposed, leading
from leakgauge.membership.report.verdict import situation, verdict
from leakgauge.report.grouping import Test
from leakgauge.report.section import ONE_TRAINING
from leakgauge.results.scores import AUROC, smallest_detectable
from leakgauge.runs.assessment import Assessment, Finding, Threat, Worst
from leakgauge.runs.question import Answer

ODDS = "odds to 1 of being a member"
LIMITS = (
    "A figure is a mean over records; single records may be recognised with near certainty.",
    "Members and others are drawn alike here. An attacker of another population may do better or "
    "worse.",
    "Odds are the attack's own estimate, not a probability for a record in the world.",
)


def assessment(answer: Answer, folder: Path) -> Assessment:
    """Return threat, tests and the records most at risk."""
    tests = attack_tests(answer.measurements)
    worst = [
        Worst("record", f"row {one.row}", ODDS, one.odds, test.who)
        for test in leading(tests)
        for one in exposed(test, folder)[:1]
        if one.odds > 1
    ]
    return Assessment(
        threat=_threat(answer, tests),
        findings=_findings(tests),
        worst=worst,
        no_worst=""
        if worst
        else "the run names no record that validation records show to be at risk",
        limits=LIMITS if answer.run.settings.get("checkpoint") else (ONE_TRAINING, *LIMITS),
    )


def _findings(tests: Sequence[Test]) -> list[Finding]:
    leads = {id(test) for test in leading(tests)}
    found = []
    for test in tests:
        one = test.whole(AUROC)
        if one is None:
            continue
        judged = verdict(test)
        least = smallest_detectable(one.estimate, one.chance)
        found.append(Finding(one, judged.headline, judged.level, id(test) in leads, least))
    return found


def _threat(answer: Answer, tests: Sequence[Test]) -> Threat:
    names = dict.fromkeys(test.adversary for test in tests)
    each = [(name, ABOUT.get(name.partition(":")[0])) for name in names]
    return Threat(
        goal="to infer whether a record was used to train the model",
        knows=[
            "The model, its parameters and its loss, where the attack sees them.",
            *(f"`{name}` knows {about[0]}." for name, about in each if about),
        ],
        does=[
            situation(answer.run.settings) or "It looks at the trained model and changes nothing.",
            *(f"`{name}` sees {about[1]}." for name, about in each if about),
        ],
        lacks=["Which of the target records are members."],
        nist=["NISTAML.033 membership inference"],
        edpb=["membership inference"],
    )
