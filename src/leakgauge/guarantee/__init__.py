"""Does a promised guarantee hold? Worst-case audits of a DP mechanism, attribute by attribute."""

from leakgauge.guarantee.canary import Canary, Craft, craft
from leakgauge.guarantee.estimate import (
    Errors,
    epsilon_clopper_pearson,
    epsilon_gaussian_dp,
    epsilon_of_mu,
    largest_showable,
    mu_clopper_pearson,
)
from leakgauge.guarantee.game import Result, audit_pair
from leakgauge.guarantee.mechanism import DPSGD, Mechanism, OpacusMechanism, OptimizerStep
from leakgauge.guarantee.pair import Attribute, Pair, attribute_of, choose_pairs
from leakgauge.guarantee.statistic import LayerRatio, LikelihoodRatio, Norm, Statistic
from leakgauge.guarantee.theory import Theory, theory_of
from leakgauge.guarantee.threshold import choose_threshold, errors_at, threshold_in_sample

__all__ = [
    "DPSGD",
    "Attribute",
    "Canary",
    "Craft",
    "Errors",
    "LayerRatio",
    "LikelihoodRatio",
    "Mechanism",
    "Norm",
    "OpacusMechanism",
    "OptimizerStep",
    "Pair",
    "Result",
    "Statistic",
    "Theory",
    "attribute_of",
    "audit_pair",
    "choose_pairs",
    "choose_threshold",
    "craft",
    "epsilon_clopper_pearson",
    "epsilon_gaussian_dp",
    "epsilon_of_mu",
    "errors_at",
    "largest_showable",
    "mu_clopper_pearson",
    "theory_of",
    "threshold_in_sample",
]
