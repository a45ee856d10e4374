"""Controls of reconstruction: an update that noise hides, and one that shows its record."""

from dataclasses import replace

from leakgauge.core.knowledge import STATIC
from leakgauge.data.source import Source
from leakgauge.inversion.methods import FOR_TABLES
from leakgauge.inversion.spec import InversionSpec
from leakgauge.inversion.words import OF_CLIENTS
from leakgauge.runs.assessment import Controls, Variant
from leakgauge.runs.question import Prepared
from leakgauge.runs.spec import NONE

NOISE = "noise:std=1000"
"""Noise that hides any gradient."""

FEW = 4
"""Records of a control, at most."""

REAL = "the update is a real client's; its records are not known, so controls have no verdict"


def controls(prepared: Prepared) -> Controls:
    """Return both controls."""
    spec, source = prepared.spec, prepared.source
    if spec.update is not None:
        return Controls(REAL, REAL)
    plain = replace(spec, **{name: getattr(InversionSpec, name) for name in OF_CLIENTS})
    plain = replace(plain, ladder=False, local_steps=1, reshuffle=False, assumed_lr=None)
    alone = replace(plain, batch_size=1, epochs=1, server_lr=None, matching=None)
    few = replace(alone, joint=None, gamma=None, rough_iterations=None, same_batches=False)
    few = replace(few, images=FEW, simulate=False, restarts=1, redact=True)
    noisy = replace(few, defense=(NOISE,), knowledge=(STATIC,))
    said = f"the update of each record is drowned in noise ({NOISE})"
    planted = _planted(replace(few, defense=(NONE,), knowledge=()), source)
    return Controls(Variant(noisy, source, said), planted)


def _planted(spec: InversionSpec, source: Source) -> Variant:
    """Return a run on updates of single records; division also reads those of a table."""
    said = "each update is the gradient of a single record"
    if source.task is not None:
        return Variant(spec, source, said)
    if source.pixels is not None:
        return Variant(replace(spec, labels="known"), source, f"{said}, whose label is known")
    methods = tuple(dict.fromkeys((FOR_TABLES, *spec.method)))
    said += ", which the first linear layer gives away exactly"
    return Variant(replace(spec, method=methods), source, said)
