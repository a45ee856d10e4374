"""Estimators of mutual information from a critic's scores of matched and mismatched pairs.

A critic scores K feature vectors against K tokens, ``scores [K, K]``; matched pairs are on the
diagonal. An estimator has an objective, which critics maximise, and a value, which is computed from
a few numbers of each group of pairs, so that groups can be resampled.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from leakgauge.core.checks import require_choice
from leakgauge.results.information import NATS
from leakgauge.results.measurements import Estimate
from leakgauge.results.statistics import mean_estimate
from leakgauge.tokens.words import INFONCE, MINE, NWJ, SMILE

CLIP = 5.0
"""The clip of SMILE, in nats; Song and Ermon try 1, 5, 10 and none."""


class Estimator(ABC):
    """Turns scores into nats.

    Attributes:
        start: score of a constant critic with a value of 0.
    """

    start: float

    @abstractmethod
    def objective(self, scores: Tensor) -> Tensor:
        """Return the objective that a critic maximises on a batch ``[K, K]``."""

    @abstractmethod
    def parts(self, scores: Tensor) -> Tensor:
        """Return two numbers of a group ``[2]``, the input of ``value``."""

    def value(self, parts: Tensor) -> Tensor:
        """Return the estimate in nats from the parts of all groups ``[G, 2]``.

        By default it is the Donsker-Varadhan value: the mean of the first parts minus the log mean
        exponential of the second.
        """
        return parts[:, 0].mean() - _log_mean(parts[:, 1])

    def limit(self, group: int) -> float:
        """Return the largest value of groups of this size, in nats; by default infinity."""
        return math.inf


@dataclass(frozen=True)
class InfoNCE(Estimator):
    """The contrastive bound, with all other tokens of the group as negatives.

    It has little variance and cannot exceed the log of the group's size.

    References:
        van den Oord et al., Representation learning with contrastive predictive coding, 2018.

    >>> InfoNCE().limit(64) == math.log(64)
    True
    """

    start: float = 0.0

    def objective(self, scores: Tensor) -> Tensor:
        """Return the bound."""
        return (scores.diagonal() - scores.logsumexp(1)).mean() + math.log(len(scores))

    def parts(self, scores: Tensor) -> Tensor:
        """Return the bound of a group, and 0."""
        bound = self.objective(scores.double())
        return torch.stack([bound, torch.zeros_like(bound)])

    def value(self, parts: Tensor) -> Tensor:
        """Return the mean over groups."""
        return parts[:, 0].mean()

    def limit(self, group: int) -> float:
        """Return the log of the group's size."""
        return math.log(group)


@dataclass(frozen=True)
class Nwj(Estimator):
    """The bound of Nguyen, Wainwright and Jordan (f-GAN KL), with all negatives.

    It is a bound for any critic, and its variance grows with the exponential of the information.

    References:
        Nguyen, Wainwright, Jordan, IEEE Trans. Information Theory 2010; Belghazi et al., ICML
        2018, Eq. 12.
    """

    start: float = 1.0

    def objective(self, scores: Tensor) -> Tensor:
        """Return the bound."""
        return scores.diagonal().mean() - (_log_mean_of_others(scores) - 1).exp()

    def parts(self, scores: Tensor) -> Tensor:
        """Return the mean matched score, and the log mean exponential of the others."""
        scores = scores.double()
        return torch.stack([scores.diagonal().mean(), _log_mean_of_others(scores)])

    def value(self, parts: Tensor) -> Tensor:
        """Return the bound, or the smallest finite number if it overflows."""
        return torch.nan_to_num(parts[:, 0].mean() - (_log_mean(parts[:, 1]) - 1).exp())


@dataclass(frozen=True)
class Smile(Estimator):
    """The Donsker-Varadhan value with clipped exponentials; not a bound if the clip acts.

    The critic learns by the Jensen-Shannon objective, as in the authors' experiments.

    Attributes:
        clip: largest absolute score of a negative, in nats.

    References:
        Song and Ermon, Understanding the limitations of variational mutual information
        estimators, ICLR 2020, Eq. 16.
    """

    clip: float = CLIP
    start: float = 0.0

    def objective(self, scores: Tensor) -> Tensor:
        """Return the Jensen-Shannon objective of Nowozin et al., 2016."""
        softplus = functional.softplus(scores)
        matched = (softplus - scores).diagonal().mean()
        return -matched - _mean_of_others(softplus)

    def parts(self, scores: Tensor) -> Tensor:
        """Return the mean matched score, and the clipped log mean exponential of the others."""
        scores = scores.double()
        clipped = scores.clamp(-self.clip, self.clip)
        return torch.stack([scores.diagonal().mean(), _log_mean_of_others(clipped)])


@dataclass(frozen=True)
class Mine(Estimator):
    """The Donsker-Varadhan bound with one shuffled partner for each pair.

    The gradient of the log of a batch's mean is biased. The paper does not mention a correction, so
    there is none here.

    References:
        Privacy Tokens, Eq. 4 and Algorithm 1; Belghazi et al., ICML 2018.
    """

    start: float = 0.0

    def objective(self, scores: Tensor) -> Tensor:
        """Return the bound."""
        return scores.diagonal().mean() - _log_mean(_partners(scores))

    def parts(self, scores: Tensor) -> Tensor:
        """Return the mean matched score, and the log mean exponential of the partners."""
        scores = scores.double()
        return torch.stack([scores.diagonal().mean(), _log_mean(_partners(scores))])


_KNOWN: Mapping[str, Estimator] = {INFONCE: InfoNCE(), NWJ: Nwj(), SMILE: Smile(), MINE: Mine()}


def estimator(name: str) -> Estimator:
    """Return the estimator with a name.

    Raises:
        InputError: the name is unknown.

    >>> estimator("smile")
    Smile(clip=5.0, start=0.0)
    """
    require_choice(name, "estimator", _KNOWN)
    return _KNOWN[name]


def critic_gap(scores: Tensor) -> Tensor:
    """Return the mean matched and the mean mismatched score of a group ``[2]``.

    The paper's Table 1 shows their difference. It is not an information, as it depends on the scale
    of the critic.

    References:
        Privacy Tokens, section 4.2.1.

    >>> critic_gap(torch.eye(3)).tolist()
    [1.0, 0.0]
    """
    scores = scores.double()
    return torch.stack([scores.diagonal().mean(), _mean_of_others(scores)])


def _partners(scores: Tensor) -> Tensor:
    """Return the score of each feature vector with the next vector's token ``[K]``."""
    rows = torch.arange(len(scores), device=scores.device)
    return scores[rows, rows.roll(-1)]


def _mean_of_others(scores: Tensor) -> Tensor:
    """Return the mean of the off-diagonal scores."""
    count = len(scores)
    return (scores.sum() - scores.diagonal().sum()) / (count * (count - 1))


def _log_mean_of_others(scores: Tensor) -> Tensor:
    """Return the log mean exponential of the off-diagonal scores."""
    count = len(scores)
    others = scores.masked_fill(torch.eye(count, dtype=torch.bool, device=scores.device), -math.inf)
    return others.flatten().logsumexp(0) - math.log(count * (count - 1))


def _log_mean(logs: Tensor) -> Tensor:
    """Return the log of the mean of exponentials ``[n]``."""
    return logs.logsumexp(0) - math.log(len(logs))


def jackknife(parts: Tensor, measure: Estimator) -> Estimate:
    """Return an estimator's value with a t interval of its pseudo-values over blocks.

    For a mean over blocks this is the t interval of the mean.

    Args:
        parts: two numbers per block ``[G, 2]``, with at least two blocks.
        measure: the estimator.

    References:
        Efron and Stein, The jackknife estimate of variance, Annals of Statistics 1981.

    >>> one = jackknife(torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]), InfoNCE())
    >>> one.value, round(one.low, 3), round(one.high, 3)
    (2.0, -0.484, 4.484)
    """
    count = len(parts)
    keep = ~torch.eye(count, dtype=torch.bool)
    whole, *rest = (
        min(_MOST, max(-_MOST, float(measure.value(kept))))
        for kept in (parts, *(parts[keep[row]] for row in range(count)))
    )
    spread = mean_estimate(count * whole - (count - 1) * np.array(rest))
    reach = spread.high - spread.value
    return Estimate(whole, whole - reach, whole + reach, count, unit=NATS)


_MOST = 1e100
"""Largest value that counts as finite."""
