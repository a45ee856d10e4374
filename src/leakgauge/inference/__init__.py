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
    from leakgauge.inference.adversaries.crossed_forest import CrossedForest as CrossedForest
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
    from leakgauge.inference.adversaries.quotients import QuotientReader as QuotientReader
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
    from leakgauge.inference.games.trials import Trials as Trials
    from leakgauge.inference.games.users import Game as Game
    from leakgauge.inference.games.users import UserInference as UserInference
else:
    _PLACES = {
        "adversaries.adversary": "Adversary AnyAttack Attack CandidateAdversary CandidateAttack "
        "Candidates",
        "adversaries.crossed_forest": "CrossedForest",
        "adversaries.discriminant": "Discriminant",
        "adversaries.encoder": "Encoder",
        "adversaries.energies": "Energies",
        "adversaries.forest": "Forest PcaForest",
        "adversaries.joint": "Joint Products joint_posterior products_of_round",
        "adversaries.logistic": "Logistic",
        "adversaries.matching": "Matching attribute_candidates",
        "adversaries.ordinal": "Ordinal",
        "adversaries.partial": "PartialAttack",
        "adversaries.pca_encoder": "PcaEncoder",
        "adversaries.plda": "Plda",
        "adversaries.quotients": "QuotientReader",
        "adversaries.shadow": "Shadow",
        "adversaries.stacking": "Stack accumulate accumulate_weighted",
        "catalog": "ADVERSARIES GAMES adversaries_for games_of parse_adversary",
        "games.games": "AttributeInference BATCH_GAMES BatchGame PropertyInference "
        "ProportionInference",
        "games.mixing": "Mix Pure Ratio",
        "games.trials": "CandidateBatches Trials",
        "games.users": "Game UserInference",
    }
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {one: f"{__name__}.{module}" for module, names in _PLACES.items() for one in names.split()},
    )
