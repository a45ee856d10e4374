"""An attack that learns on a shadow model (Shokri et al., S&P 2017), and judges the target's."""

from dataclasses import dataclass
from typing import ClassVar

from leakgauge.membership.adversaries.adversary import Known, Needs
from leakgauge.membership.adversaries.inputs import Inputs
from leakgauge.membership.adversaries.supervised import Fitted, Training, fit


@dataclass(frozen=True)
class ShadowModel:
    """An attack network on outputs, label and loss, which is trained at a shadow model.

    Hidden outputs and gradients belong to one network's units; they may not transfer from one
    trained network to another. Losses do.

    Attributes:
        hidden: the number of last hidden layers that it sees, too.
        epochs: of the attack network.
    """

    hidden: int = 0
    epochs: int = Training.epochs
    name: ClassVar[str] = "shadow"

    @property
    def inputs(self) -> Inputs:
        """What the network sees."""
        return Inputs(outputs=True, label=True, loss=True, hidden=self.hidden)

    @property
    def needs(self) -> Needs:
        """What must be observed."""
        return Needs(hidden=self.hidden)

    def fit(self, known: Known, *, seed: int) -> Fitted:
        """Train at the shadow model."""
        shadow = known.shadow()
        training = Training(epochs=self.epochs)
        return fit(self.inputs, training, shadow.fitting, shadow.validation, seed=seed)
