"""Rebuilds the records behind a kept update, and scores them where the auditor knows the truth."""

from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leakgauge.core.names import few
from leakgauge.core.rng import derive
from leakgauge.core.types import Dataset
from leakgauge.federation.run.normalisation import assumed_statistics
from leakgauge.federation.run.preparing import FederationPrepared, count_of
from leakgauge.federation.run.reading import read_by_match
from leakgauge.federation.run.searching import method
from leakgauge.federation.spec import NAME, RECONSTRUCTION, FederationSpec
from leakgauge.integrations.kept_reading import KeptUpdate
from leakgauge.integrations.training_settings import LocalTraining
from leakgauge.inversion.metrics.table import PSNR
from leakgauge.inversion.observed import SearchProgress
from leakgauge.inversion.run.received import Received, prepare_received
from leakgauge.inversion.scoring import (
    Baselines,
    Scorer,
    nearest_pairs,
    to_unit,
)
from leakgauge.inversion.words import ONE_STEP, WITHOUT
from leakgauge.runs.parts import Kept

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RebuiltUpdate:
    """What was rebuilt from one update.

    Attributes:
        x: rebuilt records ``[B, ...]``, each value from 0 to 1 over the range of public ones.
        truth: nearest true record of each rebuilt one; empty if the truth is unknown.
        psnr: of each pair ``[B]``, in dB; empty likewise.
        guess: the best mean PSNR of a guess that sees no update.
        loss: of the search.
        labels: as inferred ``[B]``.
        warnings: why the update may not mean what the search takes it for.
        matched: match of the records' update and the one that was sent; None without a search.
        aligned: match of their directions; None likewise.
        assumed: what the search assumed of the training, in words.
        starts: mean PSNR of the records of each start ``[R]``, in dB; empty if the truth is
            unknown.
    """

    x: Tensor
    truth: Tensor
    psnr: Floats
    guess: float
    loss: float
    labels: NDArray[np.int64]
    warnings: tuple[str, ...]
    matched: float | None = None
    aligned: float | None = None
    assumed: tuple[str, ...] = ()
    starts: Floats = field(default_factory=lambda: np.zeros(0))

    def to_arrays(self, *, redact: bool) -> Kept:
        """Return it as arrays and plain values, without any record where ``redact``."""
        x, truth = (one[:0] if redact else one for one in (self.x, self.truth))
        labels = self.labels[:0] if redact else self.labels
        arrays = {"x": x.cpu().numpy(), "truth": truth.cpu().numpy(), "psnr": self.psnr}
        arrays |= {"starts": self.starts}
        about = {
            "guess": self.guess,
            "loss": self.loss,
            "warnings": list(self.warnings),
            "matched": self.matched,
            "aligned": self.aligned,
            "assumed": list(self.assumed),
        }
        return {**arrays, "labels": labels}, {**about, "count": len(self.x)}


def rebuild(
    prepared: FederationPrepared, one: KeptUpdate, progress: SearchProgress | None
) -> RebuiltUpdate:
    """Return the records that a search finds behind a kept update.

    The search looks for as many records as ``count_of`` says, whose mean gradient is like that of
    the update: fewer than the client has where it has many.

    Raises:
        InputError: the update tells nothing, or the search has no finite loss.
    """
    spec, public = prepared.spec, prepared.others
    known = prepared.known(one)
    update = one.update(prepared.task.model, known)
    count = count_of(prepared, one)
    if count != update.records:
        update = replace(update, records=count, batch_size=None)
    seed = derive(spec.seed, NAME, RECONSTRUCTION, one.number, one.client)
    read, statistics = prepared.read[one], prepared.statistics[one]

    def search(optimizer: str | None) -> Received:
        return prepare_received(
            prepared.task,
            public,
            update,
            method(spec, prepared.data.x),
            labels=spec.labels,
            simulate=asked_to_simulate(spec),
            optimizer=optimizer,
            statistics=statistics,
            seed=seed,
        ).rebuild(progress)

    received, found = search(known.named_optimizer), read
    if not read.named:
        received, found = read_by_match(received, read, update.steps, search)
    labels = received.labels.cpu().numpy()
    assumed = (
        found.assumed,
        *_assumed_length(known, one, update.steps),
        *_assumed_beside(one),
        *received.assumed,
        *assumed_statistics(statistics, update.steps),
    )
    scored = _scored(prepared, one, received, seed)
    return RebuiltUpdate(
        scored.x,
        scored.truth,
        scored.psnr,
        scored.guess,
        received.loss,
        labels,
        received.warnings,
        received.matched,
        received.aligned,
        tuple(filter(None, assumed)),
        starts=scored.starts,
    )


@dataclass(frozen=True, eq=False)
class _Scored:
    """Rebuilt records in the order of the true ones; fields as in ``RebuiltUpdate``."""

    x: Tensor
    truth: Tensor
    psnr: Floats
    guess: float
    starts: Floats


def _scored(prepared: FederationPrepared, one: KeptUpdate, found: Received, seed: int) -> _Scored:
    """Return the records of the chosen start, with the scores of all starts."""
    unit = partial(to_unit, low=found.low, high=found.high)
    x = unit(found.x).clamp(0, 1)
    if one.client not in prepared.held:
        return _Scored(x, x[:0], np.zeros(0), 0.0, np.zeros(0))
    scorer, public = Scorer(metrics=(PSNR,)), prepared.others
    true, scaled = unit(prepared.data.x[prepared.held[one.client]]), unit(public.x)
    baselines = Baselines(Dataset(scaled, public.y), scaled.mean(dim=0))
    guesses = baselines.drawn(len(x), seed), baselines.mean.expand_as(x)
    each = [found.x] if found.starts is None else list(found.starts)
    starts = np.array([_matched(scorer, unit(start).clamp(0, 1), true) for start in each])
    order = nearest_pairs(x, true)
    x, truth = x[order[0]], true[order[1]]
    psnr = scorer.scores(x, truth)[PSNR].cpu().numpy()
    return _Scored(x, truth, psnr, max(_matched(scorer, g, true) for g in guesses), starts)


def _assumed_beside(one: KeptUpdate) -> tuple[str, ...]:
    """Return that what a client sends beside its model is assumed to have no part in its steps."""
    if not one.beside:
        return ()
    return (
        f"{WITHOUT} {few(one.beside)}, which was sent beside the model (control variates, as "
        "SCAFFOLD's, move each step from the second round on)",
    )


def _assumed_length(known: LocalTraining, one: KeptUpdate, steps: int) -> tuple[str, ...]:
    """Return how many steps are assumed where no setting names the length of a round."""
    if known.steps_over(one.examples):
        return ()
    return (ONE_STEP,) if steps == 1 else (f"{steps} local steps, as BatchNorm counted",)


def asked_to_simulate(spec: FederationSpec) -> bool | None:
    """Return whether the user asks for simulated steps, or forbids them; None for neither."""
    return False if spec.no_simulate else spec.simulate or None


def _matched(scorer: Scorer, guess: Tensor, truth: Tensor) -> float:
    rows, columns = nearest_pairs(guess, truth)
    return float(scorer.scores(guess[rows], truth[columns])[PSNR].mean())


def from_arrays(kept: Kept) -> RebuiltUpdate:
    """Return what ``to_arrays`` gave."""
    arrays, about = kept
    x, truth = (torch.from_numpy(arrays[name]) for name in ("x", "truth"))
    figures = arrays["psnr"], about["guess"], about["loss"]
    return RebuiltUpdate(
        x,
        truth,
        *figures,
        arrays["labels"],
        tuple(about["warnings"]),
        about["matched"],
        about["aligned"],
        tuple(about["assumed"]),
        arrays["starts"],
    )
