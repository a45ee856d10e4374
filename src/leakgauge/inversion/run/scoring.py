"""How near rebuilt records are to the true ones, and the records that say so."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from leakgauge.data.decode import column_hits
from leakgauge.inference.run import versions
from leakgauge.inversion.metrics.lpips import Lpips
from leakgauge.inversion.metrics.similarity import (
    SSIM_WINDOW,
    align_to_truth,
    psnr,
    ssim,
)
from leakgauge.inversion.metrics.table import COLUMNS, LABEL_ACCURACY, LOSS, METRICS, PSNR
from leakgauge.inversion.run.scenario import Scenario
from leakgauge.inversion.run.spec import EXACT, KNOWN, QUESTION, InversionCell
from leakgauge.inversion.search.targets import Reconstruction
from leakgauge.results.measurements import ACCUMULATED, Estimate, Measurement
from leakgauge.results.metrics import metric_named
from leakgauge.results.statistics import mean_estimate, share_estimate


@dataclass(frozen=True, eq=False)
class Rebuilt:
    """What one attempt gave, beside the truth.

    Attributes:
        found: records as they were rebuilt ``[N, ...]`` in the truth's order: images with pixels
            from 0 to 1, or encoded rows of a table.
        truth: ``[N, ...]``, in the same units.
        scores: by metric, of each record ``[N]`` (of each update for ``label_accuracy``).
        curves: ``loss`` and ``psnr`` over iterations, means over the records.
        seconds_per_iteration: of all records together.
        warnings: why an update may not mean a gradient.
        chance: what a guess scores that takes no gradient, by metric.
        rounds: scores of single epochs ``{epoch: {metric: [N]}}``; epochs count from 1.
    """

    found: Tensor
    truth: Tensor
    scores: Mapping[str, Tensor]
    curves: Mapping[str, tuple[tuple[float, float], ...]]
    seconds_per_iteration: float
    warnings: tuple[str, ...] = ()
    chance: Mapping[str, float] = field(default_factory=dict)
    rounds: Mapping[int, Mapping[str, Tensor]] = field(default_factory=dict)


def ordered(found: Tensor, truth: Tensor) -> Tensor:
    """``[T, B, ...]`` in the order of the truth, ``[T * B, ...]``."""
    pairs = zip(found, truth, strict=True)
    return torch.cat([one[align_to_truth(one, real)] for one, real in pairs])


def shown(scene: Scenario, x: Tensor) -> Tensor:
    """Records as they are scored: pixels from 0 to 1, or encoded rows."""
    return x.detach() if scene.pixels is None else scene.pixels.decode(x.detach())


def scores_of(
    scene: Scenario, found: Tensor, truth: Tensor, lpips: Lpips | None
) -> dict[str, Tensor]:
    """Of each record ``[N]``."""
    if scene.schema is not None:
        hits = column_hits(found, truth, scene.schema)
        each = {f"{COLUMNS}: {name}": torch.tensor(hit).double() for name, hit in hits.items()}
        return {COLUMNS: torch.stack(list(each.values())).mean(dim=0), **each}
    pair = shown(scene, found), shown(scene, truth)
    scores = {PSNR: psnr(*pair)}
    if min(pair[0].shape[2:]) >= SSIM_WINDOW:
        scores["ssim"] = ssim(*pair)
    return scores if lpips is None else {**scores, "lpips": lpips(*pair).double()}


def curves_of(
    scene: Scenario, found: Reconstruction, truth: Tensor
) -> dict[str, tuple[tuple[float, float], ...]]:
    """Means over the targets, by iteration."""
    loss = zip(found.steps.tolist(), found.losses.mean(dim=0).tolist(), strict=True)
    # A search that ran off has points without a value.
    curves = {LOSS: tuple((float(at), value) for at, value in loss if math.isfinite(value))}
    if scene.pixels is not None and found.snapshots.numel():
        values = [
            psnr(
                shown(scene, ordered(found.snapshots[:, at], truth)),
                shown(scene, truth.flatten(0, 1)),
            ).mean()
            for at in range(found.snapshots.shape[1])
        ]
        steps = found.snapshot_steps.tolist()
        curves[PSNR] = tuple(
            (float(at), float(value)) for at, value in zip(steps, values, strict=True)
        )
    return curves


def chance_of(scene: Scenario) -> dict[str, float]:
    """What a guess scores that takes no gradient."""
    scores = scores_of(scene, scene.guess.expand_as(scene.x), scene.x, None)
    return {name: float(values.mean()) for name, values in scores.items()}


def records_of(cell: InversionCell, data: str, rebuilt: Rebuilt) -> list[Measurement]:
    """One record a figure; single epochs are rounds, everything together is accumulated."""
    sets: list[tuple[int | str, Mapping[str, Tensor]]] = [
        (ACCUMULATED, rebuilt.scores),
        *rebuilt.rounds.items(),
    ]
    found = [
        _record(
            cell,
            data,
            (name, when),
            # Labels that were given are right: nothing was measured.
            _estimate(name, values, granted=name == LABEL_ACCURACY and cell.labels == KNOWN),
            chance=rebuilt.chance.get(name, 0.0),
            curve=rebuilt.curves.get(name) if when == ACCUMULATED else None,
        )
        for when, scores in sets
        for name, values in scores.items()
    ]
    curve = rebuilt.curves.get(LOSS)
    if not curve:  # Nothing was searched for, or the loss never was finite.
        return found
    last = curve[-1][1]
    loss = Estimate(last, last, last, len(rebuilt.truth))
    return [*found, _record(cell, data, (LOSS, ACCUMULATED), loss, chance=0.0, curve=curve)]


def _estimate(name: str, values: Tensor, *, granted: bool) -> Estimate:
    metric, plain = metric_named(name, METRICS), values.detach().cpu().double().numpy()
    if metric.is_share and not granted:
        return share_estimate(plain)
    return mean_estimate(plain, unit=metric.unit, bounds=metric.bounds)


def _record(
    cell: InversionCell,
    data: str,
    figure: tuple[str, int | str],
    estimate: Estimate,
    *,
    chance: float,
    curve: tuple[tuple[float, float], ...] | None,
) -> Measurement:
    how = EXACT if cell.method == EXACT else repr(cell.settings)
    return Measurement(
        question="inversion",
        game=QUESTION,
        dataset=data,
        label=str(cell.label),
        secret="records",
        defense=cell.defense,
        knowledge=cell.knowledge,
        adversary=cell.method,
        metric=figure[0],
        round=figure[1],
        seed=cell.seed,
        estimate=estimate,
        chance=chance,
        curve=curve,
        details={"settings": how, "labels": cell.labels},
        versions=versions(),
    )
