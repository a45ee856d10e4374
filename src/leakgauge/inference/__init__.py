"""What secrets do gradients give away? Li et al., CCS 2024."""

from leakgauge.inference.adversary import Adversary, Attack
from leakgauge.inference.auto import Auto
from leakgauge.inference.discriminant import Discriminant
from leakgauge.inference.energies import Energies
from leakgauge.inference.forest import Forest
from leakgauge.inference.games import GAMES, AttributeInference, PropertyInference, Trials
from leakgauge.inference.logistic import Logistic
from leakgauge.inference.pca_forest import PcaForest
from leakgauge.inference.rounds import accumulate
from leakgauge.inference.shadow import Shadow

ATTACKS: dict[str, type[Attack]] = {
    attack.name: attack for attack in (Forest, Logistic, Energies, Discriminant, PcaForest, Auto)
}
"""By the name at the command line."""

__all__ = [
    "ATTACKS",
    "GAMES",
    "Adversary",
    "Attack",
    "AttributeInference",
    "Auto",
    "Discriminant",
    "Energies",
    "Forest",
    "Logistic",
    "PcaForest",
    "PropertyInference",
    "Shadow",
    "Trials",
    "accumulate",
]
