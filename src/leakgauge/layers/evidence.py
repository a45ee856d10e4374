"""Evidence for an audit card: the assessment of an answer, and the control runs."""

from dataclasses import replace
from pathlib import Path

from leakgauge.core.checks import InputError
from leakgauge.data.altered import shuffled, with_planted_secret
from leakgauge.layers.report.rows import advice_of, layer_rows, most_exposed, whole
from leakgauge.layers.run.preparing import LayersPrepared
from leakgauge.report.levels import HEADLINES, level_of
from leakgauge.report.section import ONE_TRAINING
from leakgauge.results.scores import smallest_detectable
from leakgauge.runs.assessment import Assessment, Controls, Finding, Threat, Variant
from leakgauge.runs.question import Answer

LIMITS = (
    "Each attack sees gradients of some layers; another attack may read another layer better.",
    "Usable information is what these attacks can use. It bounds nothing from above.",
    "The advice holds for these attacks and this training.",
)


def assessment(answer: Answer, folder: Path) -> Assessment:
    """Return the threat, and the attack that sees all layers."""
    measurements = answer.measurements
    one, rows = whole(measurements), layer_rows(measurements)
    findings = []
    if one is not None:
        level = level_of(one.estimate, one.chance)
        least = smallest_detectable(one.estimate, one.chance)
        findings.append(Finding(one, HEADLINES[level], level, True, least))
    top, advice = most_exposed(rows), advice_of(measurements)
    limits = [ONE_TRAINING, *LIMITS]
    if top is not None:
        limits.append(f"Layer `{top.name}` leaks most; the report has all layers.")
    if advice is not None and not advice.holds:
        limits.append("The advice to protect layers does not hold: more is left than it names.")
    return Assessment(
        threat=_threat(answer),
        findings=findings,
        no_worst="the figures are about layers, not about single users or records",
        limits=limits,
    )


def _threat(answer: Answer) -> Threat:
    settings = answer.run.settings
    return Threat(
        goal=f"to infer the property `{settings.get('secret')}` of a batch from the gradients of "
        "some layers",
        knows=[
            "Gradients of batches, layer by layer, and the model that made them.",
            "Other records of the same kind, with label and property.",
        ],
        does=["It fits an attack on each layer, and one on all layers. It changes nothing."],
        lacks=["The attacked participant's records, and which of them are in a batch."],
        nist=["NISTAML.034 property inference"],
        edpb=["attribute inference"],
    )


TRIALS = 1000
"""Largest number of trials of a control."""


def controls(prepared: LayersPrepared) -> Controls:
    """Return a run on a shuffled property, and one with a planted leak."""
    spec, source = prepared.spec, prepared.source
    cheap = replace(spec, trials=min(TRIALS, spec.trials))
    users = spec.group if spec.by_user else None
    data = shuffled(source, prepared.secret, users=users, seed=spec.seed)
    placebo = Variant(cheap, data, f"the values of {spec.secret!r} were shuffled")
    try:
        return Controls(placebo, Variant(cheap, *with_planted_secret(source, prepared.secret)))
    except InputError as error:
        return Controls(placebo, str(error))
