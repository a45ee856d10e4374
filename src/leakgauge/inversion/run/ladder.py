"""The ladder of realism: one attack on clients that are nearer and nearer to real ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from leakgauge.inversion.words import KNOWN, OF_CLIENTS, RATE
from leakgauge.training.catalog import SGD

if TYPE_CHECKING:
    from leakgauge.inversion.spec import InversionSpec

MOMENTUM = "sgd:momentum=0.9"
"""The optimizer of Flower's stock client."""

ADAM = "adam:lr=0.001"

RUNGS = {
    "gradient": "one gradient, evaluation mode",
    "training": "one gradient, training mode",
    "steps": "local steps",
    "momentum": "local steps with momentum",
    "adam": "local steps of Adam",
    "epochs": "momentum, local epochs",
    "rate": "momentum, local epochs, rate unknown",
    "sum": "momentum, local epochs, rate unknown, sum of clients",
}
"""What clients do on each rung, from the bottom. The local steps come before the optimizers, since
one step of momentum is a plain one. Adam stands beside momentum; the rungs above have momentum."""

AT_LEAST = {"batch_size": 2, "local_steps": 2, "local_epochs": 2, "clients": 2, "local_lr": 0.01}
"""What the ladder takes where a setting has its ordinary default."""


def with_ladder(spec: InversionSpec) -> InversionSpec:
    """Return the settings of the highest rung's clients; without a ladder the settings themselves.

    The steps of a client are simulated, and the attacker is told the labels: of which step a label
    is does not follow from an update.
    """
    if not spec.ladder:
        return spec
    defaults = {name: getattr(type(spec), name) for name in AT_LEAST}
    given: dict[str, Any] = {
        name: least for name, least in AT_LEAST.items() if getattr(spec, name) == defaults[name]
    }
    optimizer = MOMENTUM if spec.local_optimizer == SGD else spec.local_optimizer
    return replace(spec, **given, local_optimizer=optimizer, labels=KNOWN)


def rungs_of(spec: InversionSpec) -> dict[str, InversionSpec]:
    """Return the settings of each rung by its name, from the bottom.

    Args:
        spec: from ``with_ladder``.
    """
    plain = {name: getattr(type(spec), name) for name in OF_CLIENTS}
    one = replace(spec, **plain, ladder=False, local_steps=1, simulate=False)
    training = replace(one, train_mode=True, statistics=spec.statistics)
    steps = replace(training, local_steps=spec.local_steps, simulate=True)
    momentum = replace(steps, local_optimizer=spec.local_optimizer)
    epochs = replace(momentum, local_epochs=spec.local_epochs, reshuffle=True)
    rate = replace(epochs, unknown=(RATE,), assumed_lr=spec.assumed_lr)
    return {
        "gradient": one,
        "training": training,
        "steps": steps,
        "momentum": momentum,
        "adam": replace(steps, local_optimizer=ADAM),
        "epochs": epochs,
        "rate": rate,
        "sum": replace(rate, clients=spec.clients),
    }
