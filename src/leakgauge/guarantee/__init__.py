"""Does a promised guarantee hold? Worst-case audits of a DP mechanism, attribute by attribute."""

from leakgauge.core.lazy import attach

_NAMES = {
    "guarantee.canary": "Canary craft",
    "guarantee.game": "AuditResult audit_pair",
    "guarantee.mechanism": "DPSGDMechanism Mechanism OpacusMechanism OptimizerStep",
    "guarantee.pair": "Attribute NeighbourPair attribute_of choose_pairs",
    "guarantee.search": "Craft",
    "guarantee.shown": "Shown",
    "guarantee.theory": "PairTheory Theory theory_of",
    "guarantee.statistic": "LayerRatio LikelihoodRatio Norm Statistic",
    "privacy.estimate": "Errors epsilon_clopper_pearson epsilon_gaussian_dp epsilon_of_mu "
    "largest_showable mu_clopper_pearson",
    "privacy.many_runs": "choose_threshold errors_at threshold_in_sample",
}
"""Public names by module."""

__getattr__, __dir__, __all__ = attach(
    __name__,
    {name: f"leakgauge.{module}" for module, names in _NAMES.items() for name in names.split()},
)
