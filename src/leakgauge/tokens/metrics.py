"""The metrics of the question when in training it leaks."""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import product

from leakgauge.results.metrics import NONE_SEEN, UTILITY, Metric
from leakgauge.tokens.settings import METHODS
from leakgauge.tokens.words import ORACLE_SEES, ORACLE_UNKNOWN, SMALLEST_SEEN, TOKENS

INFORMATION, IN_SAMPLE, PLACEBO = "information", "information_in_sample", "information_placebo"
GAP, GAP_IN_SAMPLE, GAP_PLACEBO = "critic_gap", "critic_gap_in_sample", "critic_gap_placebo"
MATCHED, MISMATCHED = "critic_matched", "critic_mismatched"
CHEAP, CHEAP_PLACEBO = "linear_gaussian", "linear_gaussian_placebo"
PSNR, SSIM, MSE, LPIPS = "psnr", "ssim", "mse", "lpips"
ATTACK = (PSNR, SSIM, MSE, LPIPS)
MODEL = "model"
IGNORANT = ("iterations of the critic", "0")
"""The detail of a figure for which a constant critic did best."""

DOUBTFUL = (IGNORANT, ORACLE_SEES, ORACLE_UNKNOWN)
"""Details of figures without a leak that do not say what their critic could have seen."""

RANKS_BOUND, RANKS_GAP = "bound_ranks_attack", "gap_ranks_attack"


def is_ignorant(details: Mapping[str, str]) -> bool:
    """Return whether a constant critic did best."""
    name, value = IGNORANT
    return details.get(name) == value


def smallest_seen(details: Mapping[str, str]) -> float | None:
    """Return the smallest planted leak that a critic sees, in nats; infinite if it sees none.

    None if no leak was planted.

    >>> smallest_seen({SMALLEST_SEEN: "0.2"}), smallest_seen({SMALLEST_SEEN: NONE_SEEN})
    (0.2, inf)
    """
    text = details.get(SMALLEST_SEEN)
    return None if text is None else math.inf if text == NONE_SEEN else float(text)


def sees_nothing(details: Mapping[str, str]) -> bool:
    """Return whether a figure does not say what its critic could have seen.

    A constant critic did best, it sees no planted leak, or it finds nothing where an oracle does,
    or may do.
    """
    return any(one in details.items() for one in DOUBTFUL) or smallest_seen(details) == math.inf


def of_critic(figure: str, token: str, estimator: str) -> str:
    """Return the name of a figure of one token and one estimator.

    >>> of_critic(GAP, "autoencoder", "infonce")
    'critic_gap: autoencoder, infonce'
    """
    return f"{figure}: {token}, {estimator}"


def of_model(metric: str) -> str:
    """Return the name of a figure of the model at one checkpoint.

    >>> of_model("accuracy")
    'model: accuracy'
    """
    return f"{MODEL}: {metric}"


def _unbounded(title: str, unit: str = "", chance: float | None = 0.0) -> Metric:
    return Metric(title=title, unit=unit, low=-math.inf, high=math.inf, chance=chance, tabled=False)


_FAMILIES = {
    INFORMATION: replace(
        _unbounded("Largest held-out bound", "nats"),
        headline=True,
        tabled=True,
        blind=DOUBTFUL,
        blind_why="the critic learned nothing, or finds nothing where an adversary that knows the "
        "batches recognises them or may do so, so it shows no limit; use more records",
        planted=SMALLEST_SEEN,
    ),
    PLACEBO: _unbounded("Bound of the placebo", "nats"),
    IN_SAMPLE: _unbounded("Bound, in-sample", "nats", None),
    GAP: Metric(title="Critic gap", low=-math.inf, high=math.inf, chance=0.0),
    GAP_PLACEBO: _unbounded("Critic gap of the placebo"),
    GAP_IN_SAMPLE: _unbounded("Critic gap, in-sample", "", None),
    MATCHED: _unbounded("Score of matched pairs", "", None),
    MISMATCHED: _unbounded("Score of mismatched pairs", "", None),
}

OF_A_CRITIC = tuple(_FAMILIES)
"""Figures of a critic, which have its token and its estimator in their names."""

METRICS = {
    **_FAMILIES,
    CHEAP: replace(_unbounded("Linear-Gaussian measure", "nats"), tabled=True),
    CHEAP_PLACEBO: _unbounded("Linear-Gaussian measure of the placebo", "nats"),
    PSNR: Metric(title="PSNR", unit="dB", low=-math.inf, high=math.inf, tabled=False),
    SSIM: Metric(title="SSIM", low=-1.0, tabled=False),
    MSE: Metric(title="MSE", high=math.inf, higher_is_worse=False, tabled=False),
    LPIPS: Metric(title="LPIPS", high=math.inf, higher_is_worse=False, tabled=False),
    **{
        kind: Metric(title=f"Rank correlation of {what} with the PSNR", low=-1.0, tabled=False)
        for kind, what in ((RANKS_BOUND, "the bound"), (RANKS_GAP, "the critic gap"))
    },
    **{
        of_critic(figure, token, method): replace(
            _FAMILIES[figure],
            title=f"{_FAMILIES[figure].title.replace('Largest held-out bound', 'Held-out bound')}, "
            f"{token}, {method}",
            headline=False,
            tabled=False,
        )
        for figure, token, method in product(OF_A_CRITIC, TOKENS, METHODS)
    },
    **{
        of_model(name): replace(
            one, title=f"{one.title} at a checkpoint", chance=None, of_model=False, tabled=False
        )
        for name, one in UTILITY.items()
    },
    **UTILITY,
}
"""Metrics by name. Figures of a checkpoint have its sub-epoch as their round."""
