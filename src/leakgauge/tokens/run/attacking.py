"""The attack at one checkpoint: images rebuilt from single gradients."""

from typing import Any

import torch
from torch import Tensor

from leakgauge.core.checks import InputError
from leakgauge.core.rng import derive, stream
from leakgauge.core.threads import one_thread
from leakgauge.core.types import Grads, Params, Task
from leakgauge.inversion.attack import attack
from leakgauge.inversion.labels.inference import infer_labels
from leakgauge.inversion.metrics.lpips import default_lpips
from leakgauge.inversion.observed import AttackOptions, Knowledge, ObservedUpdates
from leakgauge.inversion.scoring import Baselines, Scorer, range_of, to_unit
from leakgauge.results.statistics import mean_estimate
from leakgauge.tokens.checking import attack_of
from leakgauge.tokens.metrics import LPIPS, METRICS, MSE, PSNR, SSIM
from leakgauge.tokens.run.measuring import CheckpointFigure
from leakgauge.tokens.run.preparing import TokensPrepared, defense_of
from leakgauge.tokens.run.training import ModelCheckpoint
from leakgauge.tokens.words import QUESTION
from leakgauge.training.client import Client
from leakgauge.training.sending import send

READ_OFF, GRANTED, SEARCHED = "read off the gradient", "granted", "searched for"


def attacked(prepared: TokensPrepared, at: ModelCheckpoint) -> dict[str, Any]:
    """Return how well images are rebuilt at one checkpoint, as plain values.

    Each image is a batch of its own, as in the paper. The images are the same at every checkpoint,
    and the search begins at the same noise.
    """
    with one_thread():
        try:
            return {"figures": [one.plain() for one in _figures(prepared, at)], "missing": []}
        except InputError as error:
            return {"figures": [], "missing": [f"attack at sub-epoch {at.step}: {error}"]}


def _figures(prepared: TokensPrepared, at: ModelCheckpoint) -> list[CheckpointFigure]:
    spec = prepared.spec
    task, params = at.task(prepared.task)
    drawn = stream(spec.seed, QUESTION, "images").permutation(len(prepared.private))
    rows = prepared.private[torch.from_numpy(drawn[: spec.images])]
    private, public = prepared.rows(rows), prepared.rows(prepared.test)
    x, y = private.x[:, None], private.y[:, None]
    client = Client(defense=defense_of(spec, at.defense))
    sent = send(task, params, x, y, client, seed=derive(spec.seed, QUESTION, "sent")).grads
    low, high = range_of(public.x)
    method = attack_of(spec)
    labels, how = (None, SEARCHED) if method.finds_labels else _labels(task, params, sent, y)
    found = attack(
        task,
        ObservedUpdates(params, sent, (1, *x.shape[2:])),
        method,
        Knowledge(low, high, labels),
        AttackOptions(derive(spec.seed, QUESTION, "attack")),
    )
    scorer = Scorer(
        lambda images: to_unit(images, low, high).clamp(0, 1),
        lpips=default_lpips(),
        metrics=(PSNR, MSE, SSIM, LPIPS),
    )
    scores = scorer.scores(found.x[:, 0], private.x)
    guess = Baselines(public, public.x.mean(0)).mean.expand_as(private.x)
    chances = scorer.scores(guess.contiguous(), private.x)
    details = {"labels": how, "iterations": str(method.iterations)}
    means = {
        name: mean_estimate(values.detach().cpu().numpy(), bounds=METRICS[name].bounds)
        for name, values in scores.items()
        if bool(values.isfinite().all())
    }
    return [
        CheckpointFigure(name, mean, float(chances[name].mean()), spec.attack, details)
        for name, mean in means.items()
    ]


def _labels(task: Task, params: Params, sent: Grads, y: Tensor) -> tuple[Tensor, str]:
    """Return the labels that the attacker reads off the gradient; the true ones where it cannot."""
    try:
        return infer_labels(task, params, sent, 1).labels, READ_OFF
    except InputError:
        return y, GRANTED
