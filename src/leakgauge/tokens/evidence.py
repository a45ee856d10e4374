"""Evidence for an audit card: the assessment of an answer, and the control runs."""

from dataclasses import replace
from pathlib import Path

from leakgauge.report.section import ONE_TRAINING
from leakgauge.runs.assessment import Assessment, Baseline, Controls, Finding, Threat, Variant
from leakgauge.runs.question import Answer, Prepared
from leakgauge.runs.spec import NONE
from leakgauge.tokens.metrics import METRICS, PLACEBO, sees_nothing, smallest_seen
from leakgauge.tokens.report.levels import headline, level_of_peak
from leakgauge.tokens.report.rows import courses
from leakgauge.tokens.report.wording import smallest
from leakgauge.tokens.words import QUESTION

NOT_KNOWN = (
    "the critic learned nothing, sees no planted leak, or finds nothing where an adversary that "
    "knows the batches recognises them or may do so, so what it could see is not known"
)

LIMITS = (
    "A bound in nats is not an attack. It shows that gradients leak, not what can be rebuilt.",
    "A held-out bound is a lower bound: more may leak, and a longer fit may find it.",
    "Checkpoints that were not measured may leak more.",
)


def assessment(answer: Answer, folder: Path) -> Assessment:
    """Return the threat, and the largest bound of each training."""
    findings, baselines, title = [], [], METRICS[PLACEBO].label
    for course in courses(answer.measurements):
        peak, placebo = course.peak, course.placebo
        if peak is None:
            continue
        level = level_of_peak(peak, placebo)
        blind = sees_nothing(peak.details)
        seen = smallest_seen(peak.details) or 0.0
        least = None if blind else max(seen, smallest(peak.estimate))
        why = NOT_KNOWN if blind else ""
        findings.append(Finding(peak, headline(level), level, True, least, why))
        if placebo is not None:
            under = f", under {course.defense}" if course.is_defended else ""
            name, value = f"gradients of other batches{under}", placebo.estimate.value
            baselines.append(Baseline(name, value, QUESTION, title, placebo))
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
        limits=(ONE_TRAINING, *LIMITS),
    )


NOISE = "noise:std=1000"
"""Noise that hides every gradient."""


def controls(prepared: Prepared) -> Controls:
    """Return a run with hidden gradients, and one with single records; neither rebuilds images."""
    plain, source = replace(prepared.spec, images=0), prepared.source
    drowned = f"the gradient of each batch is drowned in noise ({NOISE})"
    single = "each batch is a single record, and its gradient reveals most of it"
    return Controls(
        Variant(replace(plain, defense=(NOISE,)), source, drowned),
        Variant(replace(plain, defense=(NONE,), batch_size=1), source, single),
    )
