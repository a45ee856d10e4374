"""What secrets do gradients give away? Li et al., CCS 2024."""

from leakgauge.inference.adversary import Adversary, Attack
from leakgauge.inference.auto import Auto
from leakgauge.inference.forest import Forest
from leakgauge.inference.games import GAMES, AttributeInference, PropertyInference, Trials
from leakgauge.inference.logistic import Logistic
from leakgauge.inference.rounds import accumulate
from leakgauge.inference.shadow import Shadow

ATTACKS: dict[str, type[Attack]] = {attack.name: attack for attack in (Forest, Logistic, Auto)}
"""By the name at the command line."""

__all__ = [
    "ATTACKS",
    "GAMES",
    "Adversary",
    "Attack",
    "AttributeInference",
    "Auto",
    "Forest",
    "Logistic",
    "PropertyInference",
    "Shadow",
    "Trials",
    "accumulate",
]
