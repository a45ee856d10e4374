"""Attacks that train a network on known members and non-members (Nasr et al., section II-D)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from leakgauge.core.checks import require
from leakgauge.core.rng import derive
from leakgauge.membership.adversaries.adversary import (
    Floats,
    MembershipAdversary,
    MembershipKnowledge,
    Needs,
)
from leakgauge.membership.adversaries.inputs import Inputs
from leakgauge.membership.adversaries.supervised import FittedNetwork, Training, fit
from leakgauge.membership.observation import Observed

_OURS, _PAPER = Training(), Training.nasr19()


@dataclass(frozen=True)
class Learned:
    """A supervised attack; a subclass defines the inputs by ``sees``, ``layers`` and ``hidden``.

    Attributes:
        kernels: number of kernels for each layer's gradient; 0 for the default.
        epochs: training epochs of the attack network; 0 for the default.
        lr: learning rate of Adam; 0 for the default.
        joint: whether one network sees all snapshots; otherwise each snapshot has its own network,
            and the log odds are summed as if snapshots were independent.
        nasr19: the paper's settings: 1,000 kernels, 100 epochs, rate 0.0001, first weights N(0,
            0.01), components whose output grows with the number of snapshots, the loss and
            gradients on their own scale. The epoch is chosen on validation records either way.
    """

    kernels: int = 0
    epochs: int = 0
    lr: float = 0.0
    joint: bool = True
    nasr19: bool = False
    name: ClassVar[str] = ""
    sees: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for value, what in ((self.kernels, "kernels"), (self.epochs, "epochs"), (self.lr, "lr")):
            require(value >= 0, f"{what} of {self.name!r} is {value:g}; expected 0 or more")

    @property
    def inputs(self) -> Inputs:
        """The inputs of the network."""
        layers = getattr(self, "layers", None)
        return Inputs(
            **dict.fromkeys(self.sees, True),
            layers=0 if layers is None else layers or -1,
            hidden=getattr(self, "hidden", 0),
            skip=getattr(self, "skip", 0),
            plain=self.nasr19,
        )

    @property
    def needs(self) -> Needs:
        """The observations that the attack needs."""
        return self.inputs.needs

    @property
    def training(self) -> Training:
        """The training settings of the network."""
        base = _PAPER if self.nasr19 else _OURS
        kernels, epochs = self.kernels or base.kernels, self.epochs or base.epochs
        return replace(base, kernels=kernels, epochs=epochs, lr=self.lr or base.lr)

    def fit(self, known: MembershipKnowledge, *, seed: int) -> MembershipAdversary:
        """Return a network trained on known members and non-members."""
        both, count = (known.fitting, known.validation), known.fitting.records.snapshots
        if self.joint or count == 1:
            return fit(self.inputs, self.training, *both, seed=seed)
        return Summed(
            [
                fit(self.inputs, self.training, *(one.at(t) for one in both), seed=derive(seed, t))
                for t in range(count)
            ]
        )


@dataclass(frozen=True, eq=False)
class Summed:
    """The sum of one attack for each snapshot."""

    each: Sequence[MembershipAdversary]

    def log_odds(self, records: Observed) -> Floats:
        """Return the sum of their log odds ``[n]``."""
        odds = [one.log_odds(records.at(t)) for t, one in enumerate(self.each)]
        return np.asarray(np.sum(odds, axis=0), np.float64)


@dataclass(frozen=True)
class Gradients(Learned):
    """The gradients of the loss in the last layers alone.

    Attributes:
        layers: number of last layers; 0 for all.
        skip: number of last layers to leave out; 1 with one layer is the second to last.
    """

    layers: int = 1
    skip: int = 0
    name: ClassVar[str] = "gradients"


@dataclass(frozen=True)
class WhiteBox(Learned):
    """Everything: outputs, label, loss, the last hidden layer and the last layers' gradients.

    Attributes:
        layers: number of last layers with gradients; 0 for all.
        hidden: number of last hidden layers.
    """

    layers: int = 1
    hidden: int = 1
    name: ClassVar[str] = "white-box"
    sees: ClassVar[tuple[str, ...]] = ("outputs", "label", "loss")


@dataclass(frozen=True)
class HiddenOutputs(Learned):
    """The outputs of the last hidden layers, which add nothing to the model's outputs.

    Attributes:
        hidden: number of last hidden layers.
        skip: number of last hidden layers to leave out.
        outputs: whether to include the model's outputs.
    """

    hidden: int = 1
    skip: int = 0
    outputs: bool = True
    name: ClassVar[str] = "hidden-outputs"

    @property
    def inputs(self) -> Inputs:
        """The inputs of the network."""
        return replace(super().inputs, outputs=self.outputs)


@dataclass(frozen=True)
class Probabilities(Learned):
    """Black-box: the model's outputs alone."""

    name: ClassVar[str] = "probabilities"
    sees: ClassVar[tuple[str, ...]] = ("outputs",)


@dataclass(frozen=True)
class Label(Learned):
    """Black-box: the model's outputs and the true label."""

    name: ClassVar[str] = "label"
    sees: ClassVar[tuple[str, ...]] = ("outputs", "label")


@dataclass(frozen=True)
class LabelLoss(Learned):
    """Black-box: the model's outputs, the true label and the loss."""

    name: ClassVar[str] = "label-loss"
    sees: ClassVar[tuple[str, ...]] = ("outputs", "label", "loss")


@dataclass(frozen=True)
class ShadowModel:
    """An attack network on outputs, label and loss, trained at a shadow model.

    Hidden outputs and gradients depend on the units of one network and may not transfer to another;
    losses do. Table VII of Nasr et al. is about white-box shadow attacks: ``layers=1`` adds the
    gradients of the last layer.

    Attributes:
        hidden: number of last hidden layers to include.
        layers: number of last layers with gradients to include.
        epochs: training epochs of the attack network.

    References:
        Shokri et al., IEEE S&P 2017.
    """

    hidden: int = 0
    layers: int = 0
    epochs: int = Training.epochs
    name: ClassVar[str] = "shadow"

    @property
    def inputs(self) -> Inputs:
        """The inputs of the network."""
        return Inputs(outputs=True, label=True, loss=True, hidden=self.hidden, layers=self.layers)

    @property
    def needs(self) -> Needs:
        """The observations that the attack needs."""
        return self.inputs.needs

    def fit(self, known: MembershipKnowledge, *, seed: int) -> FittedNetwork:
        """Return a network trained at the shadow model."""
        one, training = known.shadow(), Training(epochs=self.epochs)
        return fit(self.inputs, training, one.fitting, one.validation, seed=seed)
