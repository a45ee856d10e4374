"""Does a promised guarantee hold? Worst-case audits of a DP mechanism, attribute by attribute."""

from typing import TYPE_CHECKING

from leakgauge.core.lazy import attach

if TYPE_CHECKING:
    from leakgauge.guarantee.canary import Canary as Canary
    from leakgauge.guarantee.canary import craft as craft
    from leakgauge.guarantee.game import AuditResult as AuditResult
    from leakgauge.guarantee.game import Theory as Theory
    from leakgauge.guarantee.game import audit_pair as audit_pair
    from leakgauge.guarantee.game import theory_of as theory_of
    from leakgauge.guarantee.mechanism import DPSGDMechanism as DPSGDMechanism
    from leakgauge.guarantee.mechanism import Mechanism as Mechanism
    from leakgauge.guarantee.mechanism import OpacusMechanism as OpacusMechanism
    from leakgauge.guarantee.mechanism import OptimizerStep as OptimizerStep
    from leakgauge.guarantee.pair import Attribute as Attribute
    from leakgauge.guarantee.pair import NeighbourPair as NeighbourPair
    from leakgauge.guarantee.pair import attribute_of as attribute_of
    from leakgauge.guarantee.pair import choose_pairs as choose_pairs
    from leakgauge.guarantee.search import Craft as Craft
    from leakgauge.guarantee.statistic import LayerRatio as LayerRatio
    from leakgauge.guarantee.statistic import LikelihoodRatio as LikelihoodRatio
    from leakgauge.guarantee.statistic import Norm as Norm
    from leakgauge.guarantee.statistic import Statistic as Statistic
    from leakgauge.privacy.estimate import Errors as Errors
    from leakgauge.privacy.estimate import epsilon_clopper_pearson as epsilon_clopper_pearson
    from leakgauge.privacy.estimate import epsilon_gaussian_dp as epsilon_gaussian_dp
    from leakgauge.privacy.estimate import epsilon_of_mu as epsilon_of_mu
    from leakgauge.privacy.estimate import largest_showable as largest_showable
    from leakgauge.privacy.estimate import mu_clopper_pearson as mu_clopper_pearson
    from leakgauge.privacy.threshold import choose_threshold as choose_threshold
    from leakgauge.privacy.threshold import errors_at as errors_at
    from leakgauge.privacy.threshold import threshold_in_sample as threshold_in_sample
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "DPSGDMechanism": "leakgauge.guarantee.mechanism",
            "Attribute": "leakgauge.guarantee.pair",
            "Canary": "leakgauge.guarantee.canary",
            "Craft": "leakgauge.guarantee.search",
            "Errors": "leakgauge.privacy.estimate",
            "LayerRatio": "leakgauge.guarantee.statistic",
            "LikelihoodRatio": "leakgauge.guarantee.statistic",
            "Mechanism": "leakgauge.guarantee.mechanism",
            "Norm": "leakgauge.guarantee.statistic",
            "OpacusMechanism": "leakgauge.guarantee.mechanism",
            "OptimizerStep": "leakgauge.guarantee.mechanism",
            "NeighbourPair": "leakgauge.guarantee.pair",
            "AuditResult": "leakgauge.guarantee.game",
            "Statistic": "leakgauge.guarantee.statistic",
            "Theory": "leakgauge.guarantee.game",
            "attribute_of": "leakgauge.guarantee.pair",
            "audit_pair": "leakgauge.guarantee.game",
            "choose_pairs": "leakgauge.guarantee.pair",
            "choose_threshold": "leakgauge.privacy.threshold",
            "craft": "leakgauge.guarantee.canary",
            "epsilon_clopper_pearson": "leakgauge.privacy.estimate",
            "epsilon_gaussian_dp": "leakgauge.privacy.estimate",
            "epsilon_of_mu": "leakgauge.privacy.estimate",
            "errors_at": "leakgauge.privacy.threshold",
            "largest_showable": "leakgauge.privacy.estimate",
            "mu_clopper_pearson": "leakgauge.privacy.estimate",
            "theory_of": "leakgauge.guarantee.game",
            "threshold_in_sample": "leakgauge.privacy.threshold",
        },
    )
