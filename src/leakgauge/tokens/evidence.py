"""Evidence for an audit card: the assessment of an answer, and the control runs."""

from dataclasses import replace
from pathlib import Path

from leakgauge.runs.assessment import Assessment, Baseline, Controls, Finding, Threat, Variant
from leakgauge.runs.question import Answer, Prepared
from leakgauge.runs.spec import NONE
from leakgauge.tokens.metrics import METRICS, PLACEBO
from leakgauge.tokens.report.levels import headline, level_of_peak
from leakgauge.tokens.report.rows import courses
from leakgauge.tokens.report.wording import smallest
from leakgauge.tokens.words import QUESTION

LIMITS = (
    "A bound in nats is not an attack. It shows that gradients leak, not what can be rebuilt.",
    "A held-out bound is a lower bound: more may leak, and a longer fit may find it.",
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
            nist=["NISTAML.032 reconstruction (nearest; the bound runs no attack)"],
            edpb=["reconstruction (nearest; the bound runs no attack)"],
        ),
        findings=findings,
        baselines=baselines,
        no_worst="the figures are about batches, not about single users or records",
        limits=LIMITS,
    )


NOISE = "noise:std=1000"
"""Noise that hides every gradient."""


def controls(prepared: Prepared) -> Controls:
    """Return a run with hidden gradients, and one with single records; neither rebuilds images."""
    plain, source = replace(prepared.spec, images=0), prepared.source
    return Controls(
        Variant(
            replace(plain, defense=(NOISE,)),
            source,
            f"the gradient of each batch is drowned in noise ({NOISE})",
        ),
        Variant(
            replace(plain, defense=(NONE,), batch_size=1),
            source,
            "each batch is a single record, and its gradient reveals most of it",
        ),
    )
