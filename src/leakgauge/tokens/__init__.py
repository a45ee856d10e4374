"""When in training does it leak? Privacy tokens and mutual information.

References:
    Real-Time Privacy Risk Measurement with Privacy Tokens for Gradient Leakage.
"""

from leakgauge.core.lazy import attach

_NAMES = {
    "estimation": "Information estimate_information mutual_information",
    "linear_gaussian": "linear_information",
    "monitor.monitor": "Monitor",
    "settings": "CriticSettings",
    "sources": "FixedPairs Pairs PairSplit PooledPairs split_pairs split_stream",
}
"""Public names by module."""

__getattr__, __dir__, __all__ = attach(
    __name__,
    {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names.split()},
)
