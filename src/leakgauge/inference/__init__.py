"""What secrets do gradients give away? Li et al., CCS 2024."""

from leakgauge.inference.adversaries.adversary import Adversary, Attack
from leakgauge.inference.adversaries.auto import Auto
from leakgauge.inference.adversaries.discriminant import Discriminant
from leakgauge.inference.adversaries.encoder import Encoder
from leakgauge.inference.adversaries.energies import Energies
from leakgauge.inference.adversaries.forest import Forest
from leakgauge.inference.adversaries.joint import Evidence, Joint, evidence_of_round, judge_jointly
from leakgauge.inference.adversaries.logistic import Logistic
from leakgauge.inference.adversaries.matching import Matching, attribute_candidates
from leakgauge.inference.adversaries.ordinal import Ordinal
from leakgauge.inference.adversaries.pca_forest import PcaForest
from leakgauge.inference.adversaries.plda import Plda
from leakgauge.inference.adversaries.rounds import accumulate
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.inference.adversaries.stacking import Stack, accumulate_weighted
from leakgauge.inference.games.candidates import (
    CandidateAdversary,
    CandidateAttack,
    CandidateBatches,
    Candidates,
)
from leakgauge.inference.games.games import (
    AttributeInference,
    BatchGame,
    PropertyInference,
    ProportionInference,
)
from leakgauge.inference.games.mixing import Mix, Pure, Ratio
from leakgauge.inference.games.trials import Game, Trials
from leakgauge.inference.games.users import UserInference

AnyAttack = Attack | CandidateAttack

BATCH_GAMES: dict[str, type[BatchGame]] = {
    game.name: game for game in (PropertyInference, AttributeInference, ProportionInference)
}

GAMES: tuple[str, ...] = (*BATCH_GAMES, UserInference.name)
"""By the name at the command line."""

_ON_BATCHES = (Forest, Logistic, Energies, Discriminant, PcaForest, Auto)
_PLAYERS: dict[str, tuple[type[AnyAttack], ...]] = {
    PropertyInference.name: (*_ON_BATCHES, Joint),
    AttributeInference.name: (*_ON_BATCHES, Joint, Matching),
    ProportionInference.name: (Forest, Logistic, Energies, PcaForest, Auto),
    UserInference.name: (Encoder, Plda),
}

ATTACKS: dict[str, type[AnyAttack]] = {
    attack.name: attack for attack in (*_ON_BATCHES, Joint, Matching, Encoder, Plda)
}
"""By the name at the command line."""


def players(ask: str) -> tuple[type[AnyAttack], ...]:
    """The attacks that play a game; the first is the paper's."""
    return _PLAYERS[ask]


__all__ = [
    "ATTACKS",
    "BATCH_GAMES",
    "GAMES",
    "Adversary",
    "AnyAttack",
    "Attack",
    "AttributeInference",
    "Auto",
    "CandidateAdversary",
    "CandidateAttack",
    "CandidateBatches",
    "Candidates",
    "Discriminant",
    "Encoder",
    "Energies",
    "Evidence",
    "Forest",
    "Game",
    "Joint",
    "Logistic",
    "Matching",
    "Mix",
    "Ordinal",
    "PcaForest",
    "Plda",
    "PropertyInference",
    "ProportionInference",
    "Pure",
    "Ratio",
    "Shadow",
    "Stack",
    "Trials",
    "UserInference",
    "accumulate",
    "accumulate_weighted",
    "attribute_candidates",
    "evidence_of_round",
    "judge_jointly",
    "players",
]
