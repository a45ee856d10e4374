"""Evaluates an oracle, which knows the model and all candidate batches.

A critic must learn what gradients tell. An oracle computes the gradient of every candidate batch
and compares it with the one that was sent. If the oracle recognises batches, then gradients leak,
whatever a critic finds.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

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
    """What a defense does to gradients: an offset, a gain and Gaussian noise of each coordinate.

    Attributes:
        offset: means of the gradients that were sent and of the candidates ``[2, p]``.
        gain: gain of each coordinate ``[p]``.
        variance: variance of its noise ``[p]``.
        signed: whether each gradient is sent with either sign at random.
        sizes: lengths of the layers whose gradients have length 1 each, as of a defense that sends
            sizes at random; empty for gradients as they are.
    """

    offset: Tensor
    gain: Tensor
    variance: Tensor
    signed: bool = False
    sizes: tuple[int, ...] = ()

    def scores(self, sent: Tensor, known: Tensor) -> Tensor:
        """Return the log-likelihood of each gradient under each candidate, up to a constant.

        Args:
            sent: gradients that were sent ``[K, p]``.
            known: gradients of the candidates ``[C, p]``.

        Returns:
            Scores ``[K, C]``.

        >>> one = Channel(torch.zeros(2, 2), torch.ones(2), torch.ones(2))
        >>> one.scores(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 0.0]])).tolist()
        [[-0.0, -0.5]]
        """
        width = self.variance.sqrt()
        ours, theirs = _sized(sent, self.sizes), _sized(known, self.sizes)
        ours = (ours - self.offset[0]) / width
        theirs = (theirs - self.offset[1]) * self.gain / width
        found = -0.5 * torch.cdist(ours, theirs) ** 2
        return (
            torch.logaddexp(found, -0.5 * torch.cdist(-ours, theirs) ** 2) if self.signed else found
        )


def channels(sent: Tensor, known: Tensor, sizes: Sequence[int]) -> Iterator[Channel]:
    """Yield channels from candidates' gradients to those that were sent, by least squares.

    Gains and variances are those of each coordinate, or shared by a layer or by all, which needs
    fewer gradients to be fitted on. Each is fitted to gradients as they are, and to those of length
    1 in each layer; with the signs of all gradients kept, and unknown.

    Args:
        sent: gradients that were sent ``[n, p]``.
        known: gradients of the same batches, as an oracle computes them ``[n, p]``.
        sizes: numbers of coordinates of the layers, p together.
    """
    for kept, lengths in product((True, False), ((), tuple(sizes))):
        ours, theirs = _sized(sent, lengths), _sized(known, lengths)
        if kept:
            offset = torch.stack([ours.mean(0), theirs.mean(0)])
        else:
            # The sign of each gradient that was sent is unknown, and so is the offset.
            offset = ours.new_zeros(2, ours.shape[1])
            ours = ours * (ours * theirs).sum(1, keepdim=True).sign()
        ours, theirs = ours - offset[0], theirs - offset[1]
        products, square = (ours * theirs).mean(0), theirs.square().mean(0)
        for parts in ([1] * len(square), [*sizes], [len(square)]):
            power = _shared(square, parts)
            gain = _shared(products, parts) / power.clamp(min=1e-300)
            left = _shared((ours - gain * theirs).square().mean(0), parts)
            least = ROUNDING * (gain**2 * power)
            positive = torch.where(least > 0, least, torch.ones_like(least))
            variance = torch.maximum(left, positive)
            yield Channel(offset, gain, variance, not kept, lengths)


def _sized(gradients: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return gradients ``[n, p]`` with length 1 in each layer; as they are without sizes."""
    if not sizes:
        return gradients
    parts = torch.split(gradients, [*sizes], dim=1)
    return torch.cat([torch.nn.functional.normalize(one, dim=1) for one in parts], dim=1)


def _shared(values: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return values ``[p]`` with the mean of each part in its places."""
    if len(sizes) == len(values):
        return values
    return torch.cat([one.mean().expand_as(one) for one in torch.split(values, [*sizes])])


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
        ours, theirs = (
            source.draw(FITTED_ON, torch_stream(seed, "oracle", "fit")).gradients
            for source in (sent.fitting, one.fitting)
        )
        sizes = [leaf.shape[1] for leaf in ours.values()]
        fits += [(one, channel) for channel in channels(_joined(ours), _joined(theirs), sizes)]

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
            if now > best + ROUNDING:  # rounding chooses no later channel
                chosen, temperature, best = (one, channel), each, now
    blocks = found(sent.reporting, chosen[0].reporting, chosen[1])
    limit = measure.limit(max(len(one) for block in blocks for one in block))
    pairs = sum(len(one) for block in blocks for one in block)
    return at_most(replace(value(blocks, temperature), n=pairs), limit), limit


def _joined(gradients: Mapping[str, Tensor]) -> Tensor:
    joined = torch.cat([*gradients.values()], dim=1).double()
    require(bool(joined.isfinite().all()), "a gradient is not finite")
    return joined
