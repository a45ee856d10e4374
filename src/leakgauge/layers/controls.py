"""The controls of the map of layers: a property that nothing tells, and one that lies open."""

from dataclasses import replace

from leakgauge.core.checks import InputError
from leakgauge.data.altered import shuffled, with_planted_secret
from leakgauge.data.source import Source
from leakgauge.layers.spec import LayersSpec
from leakgauge.runs.assessment import Controls, Variant

TRIALS = 1000
"""Trials of a control, at most."""


def controls(spec: LayersSpec, source: Source) -> Controls:
    """Return both controls."""
    cheap = replace(spec, trials=min(TRIALS, spec.trials))
    users = spec.group if spec.by_user else None
    placebo = Variant(
        cheap,
        shuffled(source, str(spec.secret), users=users, seed=spec.seed),
        f"the values of {spec.secret!r} were shuffled",
    )
    return Controls(placebo, _planted(cheap, source))


def _planted(spec: LayersSpec, source: Source) -> Variant | str:
    try:
        data, said = with_planted_secret(source, str(spec.secret))
    except InputError as error:
        return str(error)
    return Variant(spec, data, said)
