"""What the map of layers says of its answer on an audit card."""

from pathlib import Path

from leakgauge.layers.report.rows import advice_of, layer_rows, most_exposed, whole
from leakgauge.report.levels import HEADLINES, level_of
from leakgauge.results.scores import smallest_detectable
from leakgauge.runs.assessment import Assessment, Finding, Threat
from leakgauge.runs.question import Answer

LIMITS = (
    "The attack sees gradients of some layers; another attack may read another layer better.",
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
    limits = list(LIMITS)
    if top is not None:
        limits.append(f"Of the layers, `{top.name}` gives most away; the report has all of them.")
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
            "Records of its own of the same kind, with label and property.",
        ],
        does=["It fits an attack on each layer, and one on all layers. It changes nothing."],
        lacks=["The attacked participant's records, and which of them are in a batch."],
        nist=["NISTAML.034 property inference"],
        edpb=["attribute inference"],
    )
