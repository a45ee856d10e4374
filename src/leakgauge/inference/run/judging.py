"""Turns the adversaries' judgements into measurements."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from types import MappingProxyType

import numpy as np
import torch
from numpy.typing import NDArray

from leakgauge.core.knowledge import STATIC
from leakgauge.core.rng import stream
from leakgauge.core.threads import one_thread
from leakgauge.core.types import Params
from leakgauge.core.versions import versions
from leakgauge.defenses import deployed
from leakgauge.inference import Stack, accumulate, accumulate_weighted
from leakgauge.inference.run.rounds import RoundJudgements
from leakgauge.inference.run.stage import Stage
from leakgauge.inference.settings import FRESH
from leakgauge.results import bootstrap, scores
from leakgauge.results.measurements import ACCUMULATED, STACKED, Estimate, Measurement
from leakgauge.training import predict


def judge(
    stage: Stage,
    rounds: Sequence[RoundJudgements],
    final: Params,
    *,
    dataset: str,
    label: str,
    jointly: Mapping[str, NDArray[np.float64]] = MappingProxyType({}),
) -> list[Measurement]:
    """Score every adversary, in single rounds and accumulated, and the trained model.

    Args:
        stage: what was played.
        rounds: the adversaries' judgements, round by round.
        final: the parameters after the last round.
        dataset: the data's name, for the measurements.
        label: the label's name, for the measurements.
        jointly: log posteriors ``[n, m]`` of those that judged all rounds at once, from
            ``weigh_rounds``.
    """
    with one_thread():
        return _judge(stage, rounds, final, jointly, dataset=dataset, label=label)


def _judge(
    stage: Stage,
    rounds: Sequence[RoundJudgements],
    final: Params,
    jointly: Mapping[str, NDArray[np.float64]],
    *,
    dataset: str,
    label: str,
) -> list[Measurement]:
    base = Measurement(
        question="inference",
        game=stage.game.name,
        dataset=dataset,
        label=label,
        secret=stage.settings.secret,
        defense=stage.defense.name,
        knowledge=STATIC,
        adversary="",
        metric="",
        round=0,
        seed=stage.settings.seed,
        estimate=Estimate(0, 0, 0, 0),
        chance=0.0,
        versions=versions(),
    )
    measurements: list[Measurement] = []
    for knowledge, attack in product(stage.knowledge, stage.attacks):
        key = f"{knowledge} {attack.name}"
        log_posteriors = np.stack([played.log_posterior[key] for played in rounds])
        cell = replace(base, knowledge=knowledge, adversary=attack.name)
        for number, played in enumerate(rounds, start=1):
            one = replace(
                cell,
                round=number,
                details={"adversary": played.details[key]},
                seconds=played.seconds[key],
            )
            measurements += _scored(stage, log_posteriors[number - 1], one)
        total = replace(
            cell,
            round=ACCUMULATED,
            details={"adversary": repr(attack)},
            seconds=sum(played.seconds[key] for played in rounds),
        )
        if key in jointly:
            measurements += _scored(stage, jointly[key], total)
            continue
        measurements += _scored(stage, accumulate(log_posteriors, stage.log_prior), total)
        if all(key in played.held_out for played in rounds):
            measurements += _scored(stage, *_stacked(stage, key, log_posteriors, rounds, total))
    return [*measurements, *_utility(stage, final, base)]


def _stacked(
    stage: Stage,
    key: str,
    log_posteriors: NDArray[np.float64],
    rounds: Sequence[RoundJudgements],
    total: Measurement,
) -> tuple[NDArray[np.float64], Measurement]:
    """The rounds' weighted sum, with weights learned on held-out shadow batches."""
    held_out = [played.held_out[key] for played in rounds]
    if stage.settings.batches == FRESH:
        held_out = [one.by_secret() for one in held_out]
    weights = Stack().fit(held_out)
    text = "weights of the rounds: " + ", ".join(f"{weight:.3g}" for weight in weights)
    details = {"adversary": total.details["adversary"], "accumulation": text}
    combined = accumulate_weighted(log_posteriors, stage.log_prior, weights)
    return combined, replace(total, round=STACKED, details=details)


def _scored(
    stage: Stage, log_posterior: NDArray[np.float64], base: Measurement
) -> Iterator[Measurement]:
    judged = scores.Judged(
        stage.trials.secret.cpu().numpy(), log_posterior, stage.trials.block.cpu().numpy()
    )
    # the same resamples for every adversary and round, so that they can be compared
    rng = stream(stage.settings.seed, stage.game.name, "bootstrap")
    chance = scores.chance(judged.truth, stage.majority)
    for metric, estimate in scores.score(judged, majority=stage.majority, rng=rng).items():
        curve = scores.roc(judged) if metric == scores.AUROC else None
        yield replace(base, metric=metric, estimate=estimate, chance=chance[metric], curve=curve)


def _utility(stage: Stage, final: Params, base: Measurement) -> Iterator[Measurement]:
    """The trained model's accuracy; nothing where its outputs are no scores of classes."""
    predicted = predict(deployed(stage.task), final, stage.test)
    if predicted is None:
        return
    correct = (predicted == stage.test.y).cpu().numpy()
    users = stage.test.users
    block = np.arange(len(correct)) if users is None else users.cpu().numpy()
    rng = stream(stage.settings.seed, stage.game.name, "utility")
    yield replace(
        base,
        metric=scores.ACCURACY,
        round=stage.settings.rounds,
        estimate=bootstrap.share(correct, block, rng=rng),
        chance=float(torch.bincount(stage.test.y).max()) / len(correct),
    )
