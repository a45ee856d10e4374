"""What secrets do gradients give away? Li et al., CCS 2024."""

from leakgauge.inference.adversary import Adversary, Attack
from leakgauge.inference.auto import Auto
from leakgauge.inference.candidates import (
    CandidateBatches,
    Candidates,
    MatchingAdversary,
    MatchingAttack,
)
from leakgauge.inference.discriminant import Discriminant
from leakgauge.inference.encoder import Encoder
from leakgauge.inference.energies import Energies
from leakgauge.inference.forest import Forest
from leakgauge.inference.games import (
    AttributeInference,
    BatchGame,
    PropertyInference,
    ProportionInference,
)
from leakgauge.inference.joint import Evidence, Joint, evidence_of_round, judge_jointly
from leakgauge.inference.logistic import Logistic
from leakgauge.inference.matching import Matching, attribute_candidates
from leakgauge.inference.mixing import Mix, Pure, Ratio
from leakgauge.inference.ordinal import Ordinal
from leakgauge.inference.pca_forest import PcaForest
from leakgauge.inference.plda import Plda
from leakgauge.inference.rounds import accumulate
from leakgauge.inference.shadow import Shadow
from leakgauge.inference.stacking import Stack, accumulate_weighted
from leakgauge.inference.trials import Game, Trials
from leakgauge.inference.users import UserInference

AnyAttack = Attack | MatchingAttack

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
    "MatchingAdversary",
    "MatchingAttack",
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
