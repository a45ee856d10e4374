"""When in training does it leak? Privacy tokens and mutual information.

References:
    Real-Time Privacy Risk Measurement with Privacy Tokens for Gradient Leakage.
"""

from leakgauge.core.lazy import attach

_PLACES = {
    "FixedPairs": "sources",
    "Information": "estimation",
    "Monitor": "monitor.monitor",
    "Pairs": "sources",
    "PairSplit": "sources",
    "PooledPairs": "sources",
    "CriticSettings": "settings",
    "estimate_information": "estimation",
    "linear_information": "linear_gaussian",
    "mutual_information": "estimation",
    "split_pairs": "sources",
    "split_stream": "sources",
}

__getattr__, __dir__, __all__ = attach(
    __name__, {name: f"{__name__}.{place}" for name, place in _PLACES.items()}
)
