"""The controls of the timeline: gradients that are drowned, and those of single records."""

from dataclasses import replace

from leakgauge.data.source import Source
from leakgauge.runs.assessment import Controls, Variant
from leakgauge.runs.spec import NONE
from leakgauge.tokens.spec import TimelineSpec

NOISE = "noise:std=1000"
"""Noise beside which no gradient is seen."""


def controls(spec: TimelineSpec, source: Source) -> Controls:
    """Return both controls; no images are rebuilt beside them."""
    plain = replace(spec, images=0)
    return Controls(
        Variant(
            replace(plain, defense=(NOISE,)),
            source,
            f"the gradient of each batch is drowned in noise ({NOISE})",
        ),
        Variant(
            replace(plain, defense=(NONE,), batch_size=1),
            source,
            "each batch is a single record, whose gradient tells most of it",
        ),
    )
