"""Evaluates an oracle, which knows the model and all candidate batches.

A critic must learn what gradients tell. An oracle computes the gradient of every candidate batch
and compares it with the one that was sent. If the oracle recognises batches, then gradients leak,
whatever a critic finds.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.core.rng import torch_stream
from leakgauge.results.measurements import Estimate
from leakgauge.results.statistics import at_most
from leakgauge.tokens.estimators import InfoNCE, jackknife
from leakgauge.tokens.settings import CriticSettings
from leakgauge.tokens.sources import PairSource, PairSplit

FITTED_ON = 1024
"""Largest number of gradients that a channel is fitted on."""

ROUNDING = 1e-6
"""Smallest variance of a coordinate's noise, as a share of its mean square: rounding."""

TEMPERATURES = tuple(4.0**power for power in range(-3, 9))
"""Temperatures of the scores; 1 is right for Gaussian noise of the fitted size."""


@dataclass(frozen=True, eq=False)
class Channel:
    """What a defense does to gradients, as a gain and Gaussian noise of each coordinate.

    Attributes:
        gain: gain of each coordinate ``[p]``.
        variance: variance of its noise ``[p]``.
    """

    gain: Tensor
    variance: Tensor

    def scores(self, sent: Tensor, known: Tensor) -> Tensor:
        """Return the log-likelihood of each gradient under each candidate, up to a constant.

        Args:
            sent: gradients that were sent ``[K, p]``.
            known: gradients of the candidates ``[C, p]``.

        Returns:
            Scores ``[K, C]``.

        >>> one = Channel(torch.ones(2), torch.ones(2))
        >>> one.scores(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 0.0]])).tolist()
        [[-0.0, -0.5]]
        """
        width = self.variance.sqrt()
        return -0.5 * torch.cdist(sent / width, known * self.gain / width) ** 2


def channels(sent: Tensor, known: Tensor) -> Iterator[Channel]:
    """Yield channels from candidates' gradients to those that were sent, by least squares.

    The first has a gain and a variance of each coordinate. The second shares both, and so needs
    fewer gradients to be fitted on.

    Args:
        sent: gradients that were sent ``[n, p]``.
        known: gradients of the same batches, as an oracle computes them ``[n, p]``.
    """
    product, square = (sent * known).mean(0), known.square().mean(0)
    merges: tuple[Callable[[Tensor], Tensor], ...] = (
        lambda one: one,
        lambda one: one.mean().expand_as(one),
    )
    for merged in merges:
        power = merged(square)
        gain = merged(product) / power.clamp(min=1e-300)
        left = merged((sent - gain * known).square().mean(0))
        least = ROUNDING * (gain**2 * power)
        positive = torch.where(least > 0, least, torch.ones_like(least))
        yield Channel(gain, torch.maximum(left, positive))


def oracle_information(
    sent: PairSplit, known: Sequence[PairSplit], settings: CriticSettings, *, seed: int
) -> tuple[Estimate, float]:
    """Return what an oracle finds of the information of batches and gradients, in nats.

    It is a lower bound, by InfoNCE, on pairs that the oracle did not fit or choose anything on.

    Args:
        sent: pairs with the gradients that were sent.
        known: pairs of the same batches with gradients that an oracle computes; one for each way
            to compute them. The best way is chosen on the stopping pairs.
        settings: sizes of the groups.
        seed: seed of the draws.

    Returns:
        The estimate with its interval, and the largest value that it could have, in nats.

    Raises:
        InputError: a gradient is not finite.
    """
    measure, fits = InfoNCE(), []
    for one in known:
        drawn = (
            source.draw(FITTED_ON, torch_stream(seed, "oracle", "fit"))
            for source in (sent.fitting, one.fitting)
        )
        ours, theirs = (_joined(pairs.gradients) for pairs in drawn)
        require(bool(ours.isfinite().all() and theirs.isfinite().all()), "a gradient is not finite")
        fits += [(one, channel) for channel in channels(ours, theirs)]

    def found(source: PairSource, candidates: PairSource, channel: Channel) -> list[list[Tensor]]:
        """Return the scores of each group by block."""
        groups = (
            one.groups(settings.group, settings.evaluated, torch_stream(seed, "oracle", "groups"))
            for one in (source, candidates)
        )
        return [
            [
                channel.scores(_joined(ours.gradients), _joined(theirs.gradients))
                for ours, theirs in zip(*block, strict=True)
            ]
            for block in zip(*groups, strict=True)
        ]

    def value(blocks: list[list[Tensor]], temperature: float) -> Estimate:
        parts = [
            torch.stack([measure.parts(one / temperature) for one in block]).mean(0)
            for block in blocks
        ]
        return jackknife(torch.stack(parts), measure)

    chosen, temperature, best = fits[0], 1.0, -float("inf")
    for one, channel in fits:
        stopping = found(sent.stopping, one.stopping, channel)
        for each in TEMPERATURES:
            now = value(stopping, each).value
            if now > best:
                chosen, temperature, best = (one, channel), each, now
    blocks = found(sent.reporting, chosen[0].reporting, chosen[1])
    limit = measure.limit(max(len(one) for block in blocks for one in block))
    pairs = sum(len(one) for block in blocks for one in block)
    return at_most(replace(value(blocks, temperature), n=pairs), limit), limit


def _joined(gradients: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([*gradients.values()], dim=1).double()
