"""The one scorer of rebuilt records, and the guesses without a gradient that they must beat."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.core.rng import torch_stream
from leakgauge.core.types import Dataset, Schema
from leakgauge.data.decode import column_hits
from leakgauge.inversion.metrics.lpips import Lpips
from leakgauge.inversion.metrics.similarity import SSIM_WINDOW, align_to_truth, psnr, ssim
from leakgauge.inversion.metrics.table import COLUMNS, LPIPS, PSNR, RECORDS, SSIM
from leakgauge.inversion.observed import RecoveredInputs
from leakgauge.inversion.tableak.accuracy import random_rows
from leakgauge.inversion.text.recovered import guessed_tokens, token_scores
from leakgauge.inversion.words import CLASS_MEAN, DRAWN, MEAN, NEAREST, PUBLIC, SMALL_SIDE

MSE = "mse"

SAME_RECORD = 1e-3
"""Largest difference of a coordinate of a record that counts as exact."""

CHUNK = 64
"""True records that are compared with all public ones at once."""


@dataclass(frozen=True, eq=False)
class Scorer:
    """Scores rebuilt records against the true ones.

    Attributes:
        to_units: brings records to the units of the scores: pixels or values from 0 to 1. None
            takes them as they are.
        schema: columns of a table, to count the correct ones; None for other records.
        lpips: network that scores images too.
        tokens: tokens of the true sequences that count, bool ``[N, L]``; None for other records.
        metrics: scores of records without a schema, in order; SSIM needs images of a certain size.
    """

    to_units: Callable[[Tensor], Tensor] | None = None
    schema: Schema | None = None
    lpips: Lpips | None = None
    tokens: Tensor | None = None
    metrics: tuple[str, ...] = (PSNR, SSIM, LPIPS)

    def in_units(self, x: Tensor) -> Tensor:
        """Return records in the units of the scores."""
        return x.detach() if self.to_units is None else self.to_units(x.detach())

    def scores(self, x: Tensor, truth: Tensor) -> dict[str, Tensor]:
        """Return the scores of records ``[N, ...]``, one value per record ``[N]``, by metric."""
        if self.tokens is not None:
            return token_scores(x, truth, self.tokens)
        if self.schema is not None:
            hits = column_hits(x, truth, self.schema)
            each = {f"{COLUMNS}: {name}": torch.tensor(hit).double() for name, hit in hits.items()}
            gaps = (x.double() - truth.double()).abs().flatten(1).amax(dim=1)
            whole = {RECORDS: (gaps <= SAME_RECORD).double().cpu()}
            return {COLUMNS: torch.stack(list(each.values())).mean(dim=0), **whole, **each}
        pair = self.in_units(x), self.in_units(truth)
        scores = {}
        for name in self.metrics:
            if name == PSNR:
                scores[name] = psnr(*pair)
            elif name == MSE:
                error = (pair[0].double() - pair[1].double()).square()
                scores[name] = error.flatten(1).mean(dim=1)
            elif name == SSIM and min(pair[0].shape[2:]) >= SSIM_WINDOW:
                scores[name] = ssim(*pair)
            elif name == LPIPS and self.lpips is not None:
                scores[name] = self.lpips(*pair).double()
        return scores


@dataclass(frozen=True, eq=False)
class Baselines:
    """Guesses of the records that use no gradient: a reconstruction must beat them.

    An attacker has public records of the same kind, and the labels that its attack had. A guess
    from these alone is scored as a reconstruction is: in the order that fits the truth best.

    Attributes:
        public: public records, encoded as the attacked ones.
        mean: the mean of public records ``[...]``; the most frequent tokens of public sequences.
        schema: columns of a table, which are drawn at random for a guess; None for other records.
    """

    public: Dataset
    mean: Tensor
    schema: Schema | None = None

    def guesses(self, truth: Tensor, labels: Tensor | None) -> dict[str, Tensor]:
        """Return the guesses by name, in the order of the truth, ``[N, ...]``.

        ``NEAREST`` alone chooses by the truth: no attacker can, so it bounds what any choice of a
        public record reaches.

        Args:
            truth: records of the updates ``[T, B, ...]``.
            labels: labels that the attack had, ``[T, B]``; None where it had none, or numbers.
        """
        rows = truth.flatten(0, 1)
        if not rows.is_floating_point():
            return guessed_tokens(self.public.x, self.mean, rows)
        guesses = {MEAN: self.mean.expand_as(rows)}
        public = self.public.x
        if len(public) == 0:
            return guesses
        if labels is not None and not labels.is_floating_point():
            means, typical = self._by_class(labels)
            guesses[CLASS_MEAN] = in_true_order(means, truth)
            guesses[PUBLIC] = in_true_order(typical, truth)
        else:
            guesses[PUBLIC] = public[_nearest(public, self.mean[None])].expand_as(rows)
        if self.schema is not None:
            drawn = random_rows(public, truth.shape[:2], self.schema, seed=0)
            guesses[DRAWN] = in_true_order(drawn, truth)
        guesses[NEAREST] = public[_nearest(public, rows)]
        return guesses

    def drawn(self, count: int, seed: int) -> Tensor:
        """Return so many public records at random, ``[n, ...]``."""
        order = torch.randperm(len(self.public), generator=torch_stream(seed, "others"))[:count]
        return self.public.x[order.to(self.public.x.device)]

    def _by_class(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean of each label's public records, and the record nearest to it.

        Both are ``[T, B, ...]``. A label without public records gets the mean of all.
        """
        public, mean, typical = self.public, {}, {}
        for label in torch.unique(labels).tolist():
            own = public.x[public.y == label]
            mean[label] = own.mean(0) if len(own) else self.mean
            typical[label] = (own if len(own) else public.x)[_nearest(own, mean[label][None])[0]]
        flat = labels.flatten().tolist()
        shape = (*labels.shape, *self.mean.shape)
        return tuple(  # type: ignore[return-value]
            torch.stack([of[label] for label in flat]).view(shape) for of in (mean, typical)
        )


def layer_inputs_exact(found: RecoveredInputs, truth: Tensor) -> Tensor:
    """Return the true records whose inputs to a layer were recovered, as 0 or 1 ``[T * B]``.

    Inputs are exact if none differs by more than ``SAME_RECORD`` times the record's largest input.

    Args:
        found: the recovered inputs of T updates.
        truth: true batches ``[T, B, ...]``.
    """
    scores = []
    for own, records in zip(found.x, truth, strict=True):
        true = found.of(records).detach()
        if not len(own):
            scores.append(true.new_zeros(len(true)))
            continue
        gaps = torch.cdist(true, own.to(true), p=float("inf")).amin(dim=1)
        scores.append((gaps <= SAME_RECORD * true.abs().amax(dim=1)).to(true))
    return torch.cat(scores).cpu()


def in_true_order(x: Tensor, truth: Tensor) -> Tensor:
    """Return rebuilt batches ``[T, B, ...]`` in the order of the truth, ``[T * B, ...]``."""
    return reordered(x, true_order(x, truth))


def true_order(x: Tensor, truth: Tensor) -> Tensor:
    """Return the positions of rebuilt records in the order of the truth, ``[T, B]``.

    Args:
        x: rebuilt batches ``[T, B, ...]``.
        truth: true batches ``[T, B, ...]``.
    """
    return torch.stack([align_to_truth(*pair) for pair in zip(x, truth, strict=True)])


def reordered(values: Tensor, order: Tensor) -> Tensor:
    """Return values of batches ``[T, B, ...]`` in another order ``[T, B]``, ``[T * B, ...]``."""
    pairs = zip(values, order, strict=True)
    return torch.cat([batch[places.to(batch.device)] for batch, places in pairs])


def nearest_pairs(x: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """Return the positions of rebuilt records, and of the true record matched with each.

    No true record is matched twice. It uses the truth, so it is for scoring only. The best
    B of N true records are chosen, so a guess must be matched in the same way.

    Args:
        x: rebuilt records ``[B, ...]``.
        truth: true records ``[N, ...]``.

    >>> order = nearest_pairs(torch.tensor([[0.0], [9.0]]), torch.tensor([[8.0], [5.0], [1.0]]))
    >>> [one.tolist() for one in order]
    [[0, 1], [2, 0]]
    """
    cost = torch.cdist(x.flatten(1).double(), truth.flatten(1).double()).square()
    rows, columns = linear_sum_assignment(cost.cpu().numpy())
    return torch.from_numpy(rows).to(x.device), torch.from_numpy(columns).to(x.device)


def are_pictures(x: Tensor) -> bool:
    """Return whether ``x [n, ...]`` holds pictures ``[c, h, w]``, gray or in colour.

    >>> are_pictures(torch.zeros(5, 3, 8, 8)), are_pictures(torch.zeros(5, 12))
    (True, False)
    """
    return x.dim() == 4 and x.shape[1] in (1, 3) and min(x.shape[2:]) >= 2


def are_large(x: Tensor) -> bool:
    """Return whether ``x [n, ...]`` holds pictures that a method's settings take for large ones.

    >>> are_large(torch.zeros(1, 3, 65, 8)), are_large(torch.zeros(1, 3, 64, 8))
    (True, False)
    """
    return are_pictures(x) and max(x.shape[2:]) > SMALL_SIDE


def range_of(public: Tensor) -> tuple[Tensor, Tensor]:
    """Return the lowest and highest values of records ``[n, ...]``; for pictures, by channel.

    Raises:
        InputError: the records are all equal, so they give no range.

    >>> low, high = range_of(torch.tensor([[1.0, 5.0], [3.0, 4.0]]))
    >>> low.tolist(), high.tolist()
    ([1.0, 4.0], [3.0, 5.0])
    """
    axes = (0, 2, 3) if are_pictures(public) else (0,)
    low, high = public.amin(dim=axes), public.amax(dim=axes)
    require(
        bool((high > low).any()),
        f"the public records ({len(public)}) are all equal, so they give no range of values; "
        "bring more",
    )
    return (low[:, None, None], high[:, None, None]) if len(axes) > 1 else (low, high)


def to_unit(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return values from 0 to 1 over the range of public records; 0 where that is one value."""
    width = torch.where(high > low, high - low, 1.0)
    return torch.where(high > low, (x - low) / width, 0.0)


def _nearest(public: Tensor, rows: Tensor) -> Tensor:
    """Return the position of the public record nearest to each row, ``[n]``."""
    if len(public) == 0:
        return torch.zeros(len(rows), dtype=torch.int64, device=rows.device)
    flat = public.flatten(1)
    found = [torch.cdist(part.flatten(1), flat).argmin(1) for part in torch.split(rows, CHUNK)]
    return torch.cat(found)
