"""What the timeline says of its answer on an audit card."""

from pathlib import Path

from leakgauge.runs.assessment import Assessment, Baseline, Finding, Threat
from leakgauge.runs.question import Answer
from leakgauge.tokens.metrics import METRICS, PLACEBO
from leakgauge.tokens.report.levels import headline, level_of_peak
from leakgauge.tokens.report.rows import courses
from leakgauge.tokens.report.wording import smallest
from leakgauge.tokens.words import QUESTION

LIMITS = (
    "A bound in nats is no attack. It says that gradients tell something, not what is rebuilt.",
    "A held-out bound is from below: more may leak, and a critic that learns longer may find it.",
    "Checkpoints that were not measured may leak more.",
)


def assessment(answer: Answer, folder: Path) -> Assessment:
    """Return the threat, and the largest bound of each training."""
    found = [one for one in courses(answer.measurements) if one.peak is not None]
    findings, baselines = [], []
    for course in found:
        assert course.peak is not None
        level = level_of_peak(course.peak, course.placebo)
        least = smallest(course.peak.estimate)
        findings.append(Finding(course.peak, headline(level), level, True, least))
        if course.placebo is not None:
            one = course.placebo
            title = METRICS[PLACEBO].label
            under = f", under {course.defense}" if course.is_defended else ""
            name = f"gradients of other batches{under}"
            baselines.append(Baseline(name, one.estimate.value, QUESTION, title, one))
    return Assessment(
        threat=Threat(
            goal="to learn how much the gradients of a batch tell about its records",
            knows=["Pairs of a batch's features and its gradients, from the same training."],
            does=[
                "It fits a critic on some pairs, and measures a bound of the mutual information "
                "on others. It changes nothing."
            ],
            lacks=["The pairs on which the bound is measured."],
            nist=["NISTAML.032 reconstruction (nearest; no attack is played by the bound)"],
            edpb=["reconstruction (nearest; no attack is played by the bound)"],
        ),
        findings=findings,
        baselines=baselines,
        no_worst="the figures are about batches, not about single users or records",
        limits=LIMITS,
    )
