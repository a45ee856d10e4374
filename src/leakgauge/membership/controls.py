"""The controls of membership: a model that learned nothing, and one that memorised all records."""

from dataclasses import replace

from leakgauge.data.altered import random_label
from leakgauge.data.source import Source
from leakgauge.membership.run.preparing import MembershipPrepared
from leakgauge.membership.spec import MembershipSpec
from leakgauge.runs.assessment import Controls, Variant
from leakgauge.runs.spec import LOSSES, NONE

FEW = 150
"""Number of members that a network can memorise."""

EPOCHS, RATE, BATCH, WIDTH = 150, 0.003, 16, 256
"""A training that memorises them."""

STILL = 1e-12
"""A learning rate that changes no parameter: single precision rounds the step to 0."""

GIVEN = "the model exists already and is not trained here, so neither control can be made"


def controls(prepared: MembershipPrepared) -> Controls:
    """Return both controls, without defenses, which would hide the planted leak."""
    spec, source = prepared.spec, prepared.source
    if spec.checkpoint:
        return Controls(GIVEN, GIVEN)
    plain = replace(spec, defense=(NONE,), drops=(), best_epoch=False)
    return Controls(_placebo(plain, source), _planted(plain, source, prepared.label))


def _placebo(spec: MembershipSpec, source: Source) -> Variant:
    still = replace(spec, optimizer="sgd", lr=STILL, rounds=min(spec.rounds, 5), observed=())
    changed = "the model keeps its first parameters, so no target record was learned"
    return Variant(still, source, changed)


def _planted(spec: MembershipSpec, source: Source, label: str) -> Variant:
    is_table = source.dataset is None and source.pixels is None
    few = replace(
        spec,
        size=min(spec.size or FEW, FEW),
        rounds=max(spec.rounds, EPOCHS),
        lr=RATE,
        optimizer="adam",
        batch_size=min(spec.batch_size, BATCH),
        hidden=(WIDTH,) if is_table else spec.hidden,
        bins={name: ranges for name, ranges in spec.bins.items() if name != spec.label},
        loss=spec.loss if source.dataset is not None else LOSSES[0],
        observed=(),
    )
    changed = (
        f"the labels are random, and the model memorises at most {few.size} records "
        f"in {few.rounds} epochs"
    )
    # Without default roles, which may cut the replaced label into ranges.
    data = replace(random_label(source, label, seed=spec.seed), roles=None)
    return Variant(few, data, changed)
