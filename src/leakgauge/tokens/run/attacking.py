"""The attack beside it: images rebuilt from single gradients at one checkpoint."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from leakgauge.core.checks import InputError
from leakgauge.core.rng import derive, stream
from leakgauge.core.threads import one_thread
from leakgauge.core.types import Grads, Params, Task
from leakgauge.inversion import (
    Client,
    default_lpips,
    infer_labels,
    psnr,
    reconstruct,
    send,
    ssim,
)
from leakgauge.inversion.metrics.similarity import SSIM_WINDOW
from leakgauge.results.measurements import Estimate
from leakgauge.results.statistics import mean_estimate
from leakgauge.tokens.checking import attack_of
from leakgauge.tokens.metrics import LPIPS, MSE, PSNR, SSIM
from leakgauge.tokens.run.measuring import CheckpointFigure
from leakgauge.tokens.run.preparing import TokensPrepared, defense_of
from leakgauge.tokens.run.training import ModelCheckpoint
from leakgauge.tokens.words import QUESTION

if TYPE_CHECKING:
    from leakgauge.tokens.spec import TimelineSpec

READ_OFF, GRANTED, SEARCHED = "read off the gradient", "granted", "searched for"


def attacked(spec: TimelineSpec, prepared: TokensPrepared, at: ModelCheckpoint) -> dict[str, Any]:
    """Return how well images are rebuilt at one checkpoint, as plain values.

    Each image is a batch of its own, as in the paper. The images are the same at every checkpoint,
    and the search begins at the same noise.
    """
    with one_thread():
        try:
            figures = [one.plain() for one in _figures(spec, prepared, at)]
            return {"figures": figures, "missing": []}
        except InputError as error:
            return {"figures": [], "missing": [f"attack at sub-epoch {at.step}: {error}"]}


def _figures(
    spec: TimelineSpec, prepared: TokensPrepared, at: ModelCheckpoint
) -> list[CheckpointFigure]:
    task, params = at.task(prepared.task)
    drawn = stream(spec.seed, QUESTION, "images").permutation(len(prepared.private))
    rows = prepared.private[torch.from_numpy(drawn[: spec.images])]
    private, public = prepared.rows(rows), prepared.rows(prepared.test)
    x, y = private.x[:, None], private.y[:, None]
    client = Client(defense=defense_of(spec, at.defense))
    sent = send(task, params, x, y, client, seed=derive(spec.seed, QUESTION, "sent")).grads
    low, high = (edge(public.x) for edge in (_lowest, _highest))
    settings = attack_of(spec)
    labels, how = (
        (None, SEARCHED) if settings.joint_labels else _labels(spec, task, params, sent, y)
    )
    found = reconstruct(
        task,
        params,
        sent,
        settings,
        shape=(1, *x.shape[2:]),
        seed=derive(spec.seed, QUESTION, "attack"),
        labels=labels,
        low=low,
        high=high,
    )
    truth = _pixels(private.x, low, high)
    guess = _pixels(public.x.mean(0), low, high).expand_as(truth)
    scores = _scores(_pixels(found.x[:, 0].detach(), low, high), truth)
    chances = _scores(guess.contiguous(), truth)
    details = {"labels": how, "iterations": str(settings.iterations)}
    return [
        CheckpointFigure(name, _mean(values), float(chances[name].mean()), spec.attack, details)
        for name, values in scores.items()
        if bool(values.isfinite().all())
    ]


def _labels(
    spec: TimelineSpec, task: Task, params: Params, sent: Grads, y: Tensor
) -> tuple[Tensor, str]:
    """Return the labels that the attacker reads off the gradient; the true ones where it cannot."""
    try:
        return infer_labels(task, params, sent, 1).labels, READ_OFF
    except InputError:
        return y, GRANTED


def _scores(images: Tensor, truth: Tensor) -> dict[str, Tensor]:
    """Return the scores of images ``[n, c, h, w]``, pixels from 0 to 1, of each one ``[n]``."""
    error = (images.double() - truth.double()).square().flatten(1).mean(1)
    scores = {PSNR: psnr(images, truth), MSE: error}
    if min(truth.shape[2:]) >= SSIM_WINDOW:
        scores[SSIM] = ssim(images, truth)
    lpips = default_lpips()
    return scores if lpips is None else {**scores, LPIPS: lpips(images, truth).double()}


def _mean(values: Tensor) -> Estimate:
    estimate = mean_estimate(values.detach().cpu().double().numpy())
    return replace(estimate, n=len(values))


def _lowest(x: Tensor) -> Tensor:
    """Return the lowest value of each channel of public images ``[c, 1, 1]``: black."""
    return x.amin(dim=(0, 2, 3))[:, None, None]


def _highest(x: Tensor) -> Tensor:
    return x.amax(dim=(0, 2, 3))[:, None, None]


def _pixels(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    span = torch.where(high > low, high - low, 1.0)
    return ((x - low) / span).clamp(0, 1)
