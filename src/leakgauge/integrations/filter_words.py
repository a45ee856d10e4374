"""What is said of the filters of a federation, in sentences."""

from typing import Any

OF_SVT = "SVTPrivacy"
MILLION = 1_000_000
"""Number of parameters that is assumed where the model is not known."""

OPEN = (
    "arrays that are a single number (counters of BatchNorm) and metrics beside the model (loss, "
    "number of records) leave as they are"
)
UNKNOWN = "the filter is not known here, so nothing is said of it"
PUBLISHED = "it is for the published model: the server sees the updates before it adds noise"
EQUAL = (
    "its noise is made for {clients} clients of equal weight in each round: fewer clients, or "
    "weights by their number of records, need more noise"
)
EVERY = "every client is taken to be in every round; a smaller sample is not counted"

_ENCRYPTS = (
    "it encrypts: the server sees sums alone, which have no noise, and who has the key sees more"
)
_SUMS = "the server sees sums alone, and it adds no noise to them"

WITHOUT_NOISE = {
    "StatisticsPrivacyFilter": "it hides small groups in statistics, and filters no model",
    "HEModelEncryptor": _ENCRYPTS,
    "HEModelDecryptor": _ENCRYPTS,
    "ModelQuantizer": "it rounds, and adds no noise",
    "ModelDequantizer": "it undoes rounding, and adds no noise",
    "ConvertWeights": "it turns weights into differences or back, and adds no noise",
    "DXOBlocker": "it blocks kinds of data, and adds no noise",
    "secagg_mod": _SUMS,
    "secaggplus_mod": _SUMS,
}
"""The filters of both packages that are made for something else than differential privacy."""


def too_small_for(clip: float, sensitivity: float, epsilon: float) -> str:
    """Return what a sensitivity below the clip means."""
    same = f"{epsilon * clip / sensitivity:,.6g}"
    return (
        f"its sensitivity {sensitivity:g} is below its clip {clip:g}; at the clip its own formula "
        f"gives epsilon {same}"
    )


def for_nvflare(epsilon: float, noise: float, delta: float) -> str:
    """Return what gives an epsilon in NVFlare, none of whose filters does so usefully."""
    return (
        "DP-SGD inside the training (Opacus), or a filter of your own that clips the update to C "
        f"and adds Gaussian noise of standard deviation {noise:g} C, for epsilon {epsilon:g} of "
        f"the training at delta {delta:g}"
    )


def excluding(names: Any) -> str:
    """Return why ``ExcludeVars`` is no differential privacy."""
    listed = isinstance(names, list) and all(isinstance(one, str) for one in names)
    if not names or not (listed or isinstance(names, str)):
        return "its exclude_vars names nothing, so it does nothing"
    return "it leaves arrays out, and adds no noise"


def percentile_does_nothing(percentile: float, gamma: float) -> str:
    """Return why ``PercentilePrivacy`` does nothing; empty if it does something."""
    if gamma <= 0:
        return f"its gamma is {gamma:g}, so it does nothing"
    inside = 0 <= percentile <= 100
    return "" if inside else f"its percentile is {percentile:g}, so it does nothing"
