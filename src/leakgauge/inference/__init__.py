"""What secrets do gradients give away? Li et al., CCS 2024."""

from typing import TYPE_CHECKING

from leakgauge.core.lazy import attach

if TYPE_CHECKING:
    from leakgauge.inference.adversaries.adversary import Adversary as Adversary
    from leakgauge.inference.adversaries.adversary import AnyAttack as AnyAttack
    from leakgauge.inference.adversaries.adversary import Attack as Attack
    from leakgauge.inference.adversaries.adversary import CandidateAdversary as CandidateAdversary
    from leakgauge.inference.adversaries.adversary import CandidateAttack as CandidateAttack
    from leakgauge.inference.adversaries.adversary import Candidates as Candidates
    from leakgauge.inference.adversaries.discriminant import Discriminant as Discriminant
    from leakgauge.inference.adversaries.encoder import Encoder as Encoder
    from leakgauge.inference.adversaries.energies import Energies as Energies
    from leakgauge.inference.adversaries.forest import Forest as Forest
    from leakgauge.inference.adversaries.forest import PcaForest as PcaForest
    from leakgauge.inference.adversaries.joint import Joint as Joint
    from leakgauge.inference.adversaries.joint import Products as Products
    from leakgauge.inference.adversaries.joint import joint_posterior as joint_posterior
    from leakgauge.inference.adversaries.joint import products_of_round as products_of_round
    from leakgauge.inference.adversaries.logistic import Logistic as Logistic
    from leakgauge.inference.adversaries.matching import Matching as Matching
    from leakgauge.inference.adversaries.matching import (
        attribute_candidates as attribute_candidates,
    )
    from leakgauge.inference.adversaries.ordinal import Ordinal as Ordinal
    from leakgauge.inference.adversaries.partial import PartialAttack as PartialAttack
    from leakgauge.inference.adversaries.pca_encoder import PcaEncoder as PcaEncoder
    from leakgauge.inference.adversaries.plda import Plda as Plda
    from leakgauge.inference.adversaries.shadow import Shadow as Shadow
    from leakgauge.inference.adversaries.stacking import Stack as Stack
    from leakgauge.inference.adversaries.stacking import accumulate as accumulate
    from leakgauge.inference.adversaries.stacking import accumulate_weighted as accumulate_weighted
    from leakgauge.inference.catalog import ADVERSARIES as ADVERSARIES
    from leakgauge.inference.catalog import GAMES as GAMES
    from leakgauge.inference.catalog import adversaries_for as adversaries_for
    from leakgauge.inference.catalog import games_of as games_of
    from leakgauge.inference.catalog import parse_adversary as parse_adversary
    from leakgauge.inference.games.games import BATCH_GAMES as BATCH_GAMES
    from leakgauge.inference.games.games import AttributeInference as AttributeInference
    from leakgauge.inference.games.games import BatchGame as BatchGame
    from leakgauge.inference.games.games import PropertyInference as PropertyInference
    from leakgauge.inference.games.games import ProportionInference as ProportionInference
    from leakgauge.inference.games.mixing import Mix as Mix
    from leakgauge.inference.games.mixing import Pure as Pure
    from leakgauge.inference.games.mixing import Ratio as Ratio
    from leakgauge.inference.games.trials import CandidateBatches as CandidateBatches
    from leakgauge.inference.games.trials import Game as Game
    from leakgauge.inference.games.trials import Trials as Trials
    from leakgauge.inference.games.users import UserInference as UserInference
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "ADVERSARIES": "leakgauge.inference.catalog",
            "Adversary": "leakgauge.inference.adversaries.adversary",
            "AnyAttack": "leakgauge.inference.adversaries.adversary",
            "Attack": "leakgauge.inference.adversaries.adversary",
            "AttributeInference": "leakgauge.inference.games.games",
            "BATCH_GAMES": "leakgauge.inference.games.games",
            "BatchGame": "leakgauge.inference.games.games",
            "CandidateAdversary": "leakgauge.inference.adversaries.adversary",
            "CandidateAttack": "leakgauge.inference.adversaries.adversary",
            "CandidateBatches": "leakgauge.inference.games.trials",
            "Candidates": "leakgauge.inference.adversaries.adversary",
            "Discriminant": "leakgauge.inference.adversaries.discriminant",
            "Encoder": "leakgauge.inference.adversaries.encoder",
            "Energies": "leakgauge.inference.adversaries.energies",
            "Products": "leakgauge.inference.adversaries.joint",
            "Forest": "leakgauge.inference.adversaries.forest",
            "GAMES": "leakgauge.inference.catalog",
            "Game": "leakgauge.inference.games.trials",
            "Joint": "leakgauge.inference.adversaries.joint",
            "Logistic": "leakgauge.inference.adversaries.logistic",
            "Matching": "leakgauge.inference.adversaries.matching",
            "Mix": "leakgauge.inference.games.mixing",
            "Ordinal": "leakgauge.inference.adversaries.ordinal",
            "PartialAttack": "leakgauge.inference.adversaries.partial",
            "PcaEncoder": "leakgauge.inference.adversaries.pca_encoder",
            "PcaForest": "leakgauge.inference.adversaries.forest",
            "Plda": "leakgauge.inference.adversaries.plda",
            "PropertyInference": "leakgauge.inference.games.games",
            "ProportionInference": "leakgauge.inference.games.games",
            "Pure": "leakgauge.inference.games.mixing",
            "Ratio": "leakgauge.inference.games.mixing",
            "Shadow": "leakgauge.inference.adversaries.shadow",
            "Stack": "leakgauge.inference.adversaries.stacking",
            "Trials": "leakgauge.inference.games.trials",
            "UserInference": "leakgauge.inference.games.users",
            "accumulate": "leakgauge.inference.adversaries.stacking",
            "accumulate_weighted": "leakgauge.inference.adversaries.stacking",
            "attribute_candidates": "leakgauge.inference.adversaries.matching",
            "products_of_round": "leakgauge.inference.adversaries.joint",
            "games_of": "leakgauge.inference.catalog",
            "joint_posterior": "leakgauge.inference.adversaries.joint",
            "parse_adversary": "leakgauge.inference.catalog",
            "adversaries_for": "leakgauge.inference.catalog",
        },
    )
