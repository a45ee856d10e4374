"""Rebuilds the records behind a kept update, and scores them where the auditor knows the truth."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from leakgauge.core.rng import derive, torch_stream
from leakgauge.core.types import Dataset
from leakgauge.federation.run.preparing import FederationPrepared, count_of
from leakgauge.federation.spec import NAME, RECONSTRUCTION
from leakgauge.integrations.kept_reading import KeptUpdate
from leakgauge.inversion.metrics.similarity import psnr
from leakgauge.inversion.run.attempt import settings_of
from leakgauge.inversion.run.prepare_update import range_of, rebuild_received
from leakgauge.inversion.run.received import are_large, are_pictures
from leakgauge.inversion.search.settings import Settings
from leakgauge.inversion.search.targets import Progress

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Rebuilt:
    """What was rebuilt from one update.

    Attributes:
        x: rebuilt records ``[B, ...]``, each value from 0 to 1 over the range of public ones.
        truth: the true record that stands beside each; empty where the truth is not known.
        psnr: of each pair ``[B]``, in dB; empty likewise.
        guess: the best mean PSNR of a guess that sees no update.
        loss: of the search.
        labels: as inferred ``[B]``.
        warnings: why the update may not mean what the search takes it for.
    """

    x: Tensor
    truth: Tensor
    psnr: Floats
    guess: float
    loss: float
    labels: NDArray[np.int64]
    warnings: tuple[str, ...]

    def to_arrays(self, *, redact: bool) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return it as arrays and plain values, without any record where ``redact``."""
        x, truth = (one[:0] if redact else one for one in (self.x, self.truth))
        labels = self.labels[:0] if redact else self.labels
        arrays = {"x": x.cpu().numpy(), "truth": truth.cpu().numpy(), "psnr": self.psnr}
        about = {"guess": self.guess, "loss": self.loss, "warnings": list(self.warnings)}
        return {**arrays, "labels": labels}, {**about, "count": len(self.x)}


def rebuild(prepared: FederationPrepared, one: KeptUpdate, progress: Progress | None) -> Rebuilt:
    """Return the records that a search finds behind a kept update.

    The search looks for as many records as ``count_of`` says, whose mean gradient is like that of
    the update: fewer than the client has where it has many.

    Raises:
        InputError: the update tells nothing, or the search has no finite loss.
    """
    spec, public = prepared.spec, prepared.others
    update = one.update(prepared.task.model, prepared.training)
    count = count_of(prepared, one)
    if count != update.records:
        update = replace(update, records=count, batch_size=None)
    seed = derive(spec.seed, NAME, RECONSTRUCTION, one.number, one.client)
    received = rebuild_received(
        prepared.task,
        public,
        update,
        settings(prepared),
        labels=spec.labels,
        simulate=spec.simulate,
        seed=seed,
        progress=progress,
    )
    low, high = range_of(public.x)
    x = _scaled(received.x, low, high).clamp(0, 1)
    truth, scores, guess = x[:0], np.zeros(0), 0.0
    if one.client in prepared.held:
        true = _scaled(prepared.data.x[prepared.held[one.client]], low, high)
        others = _scaled(_drawn(public, len(x), seed).x, low, high)
        mean = _scaled(public.x, low, high).mean(dim=0).expand_as(x)
        order = nearest(x, true)
        x, truth = x[order[0]], true[order[1]]
        scores = psnr(x, truth).cpu().numpy()
        guess = max(_matched(guessed, true) for guessed in (others, mean))
    return Rebuilt(
        x=x,
        truth=truth,
        psnr=scores,
        guess=guess,
        loss=received.loss,
        labels=received.labels.cpu().numpy(),
        warnings=received.warnings,
    )


def settings(prepared: FederationPrepared) -> Settings:
    """Return the settings of the search."""
    spec, x = prepared.spec, prepared.data.x
    return settings_of(
        spec.method,
        spec.iterations,
        spec.restarts,
        are_images=are_pictures(x),
        large=are_large(x),
    )


def nearest(x: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """Return which rebuilt record stands beside which true one; no true one stands twice.

    It uses the truth, so it is for scoring only. Of N true records the best B are chosen, so a
    guess must be matched in the same way.

    Args:
        x: ``[B, ...]``.
        truth: ``[N, ...]``.

    >>> order = nearest(torch.tensor([[0.0], [9.0]]), torch.tensor([[8.0], [5.0], [1.0]]))
    >>> [one.tolist() for one in order]
    [[0, 1], [2, 0]]
    """
    cost = torch.cdist(x.flatten(1).double(), truth.flatten(1).double()).square()
    rows, columns = linear_sum_assignment(cost.cpu().numpy())
    return torch.from_numpy(rows).to(x.device), torch.from_numpy(columns).to(x.device)


def _matched(guess: Tensor, truth: Tensor) -> float:
    rows, columns = nearest(guess, truth)
    return float(psnr(guess[rows], truth[columns]).mean())


def _drawn(public: Dataset, count: int, seed: int) -> Dataset:
    order = torch.randperm(len(public), generator=torch_stream(seed, "others"))[:count]
    return public.rows(order.to(public.x.device))


def _scaled(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Values from 0 to 1 over the range of public records; 0 where that is one value."""
    width = torch.where(high > low, high - low, 1.0)
    return torch.where(high > low, (x - low) / width, 0.0)


def from_arrays(kept: tuple[Mapping[str, Any], Mapping[str, Any]]) -> Rebuilt:
    """Return what ``to_arrays`` gave."""
    arrays, about = kept
    return Rebuilt(
        x=torch.from_numpy(arrays["x"]),
        truth=torch.from_numpy(arrays["truth"]),
        psnr=arrays["psnr"],
        guess=about["guess"],
        loss=about["loss"],
        labels=arrays["labels"],
        warnings=tuple(about["warnings"]),
    )
