"""The measurements of an attempt, made of the scores of its records."""

import math
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from leakgauge.inversion.methods import Method
from leakgauge.inversion.metrics.lpips import Lpips
from leakgauge.inversion.metrics.similarity import psnr
from leakgauge.inversion.metrics.table import (
    CELLS,
    CERTIFIED,
    CLEAR_DB,
    FELL_SHORT,
    GAIN,
    LABEL_ACCURACY,
    LABEL_RESIDUAL,
    LAYER_CERTIFIED,
    LEAST_SURE,
    LOSS,
    MATCHED,
    METRICS,
    MOST_SURE,
    NOT_KNOWN,
    PARTS_DB,
    PSNR,
    RECOGNISABLE,
    UNFINISHED,
)
from leakgauge.inversion.observed import Reconstruction
from leakgauge.inversion.run.attempt import Attempt
from leakgauge.inversion.run.exposing import singled_out
from leakgauge.inversion.run.rebuilt import Curve, Rebuilt, Scores
from leakgauge.inversion.run.received import Received
from leakgauge.inversion.run.scenario import Scenario
from leakgauge.inversion.scoring import in_true_order, reordered, true_order
from leakgauge.inversion.spec import InversionSpec
from leakgauge.inversion.tableak.accuracy import cells_right, sure_cells
from leakgauge.inversion.tableak.cells import same_cells
from leakgauge.inversion.words import ALIGNED, ASSUMED, KNOWN, LAYER, NAME
from leakgauge.results.measurements import (
    ACCUMULATED,
    SECONDS,
    CellContext,
    Estimate,
    Measurement,
)
from leakgauge.results.metrics import metric_named
from leakgauge.results.statistics import mean_estimate, share_estimate

SNAPSHOTS = 25
"""Points of the curve of PSNR."""


def curves_of(scenario: Scenario, search: Reconstruction, truth: Tensor) -> dict[str, Curve]:
    """Return the loss and, for images, PSNR over the iterations, means over the targets.

    The arguments are those of ``scored``.
    """
    if not search.losses.numel():
        return {}
    scorer = scenario.scorer()
    losses = zip(search.steps.tolist(), search.losses.mean(dim=0).tolist(), strict=True)
    # A search that ran off to infinity has points without a value.
    curves = {LOSS: tuple((float(at), value) for at, value in losses if math.isfinite(value))}
    if scenario.pixels is not None and search.snapshots.numel():
        values = [
            psnr(
                scorer.in_units(in_true_order(search.snapshots[:, at].reshape(truth.shape), truth)),
                scorer.in_units(truth.flatten(0, 1)),
            ).mean()
            for at in range(search.snapshots.shape[1])
        ]
        steps = search.snapshot_steps.tolist()
        curves[PSNR] = tuple(
            (float(at), float(value)) for at, value in zip(steps, values, strict=True)
        )
    return curves


def scored(
    scenario: Scenario,
    search: Reconstruction,
    truth: Tensor,
    labels: Tensor | None,
    others: Scores,
    warnings: tuple[str, ...],
    *,
    lpips: Lpips | None = None,
    rounds: Mapping[int, Scores] | None = None,
) -> Rebuilt:
    """Return the records of a search in the true order, with scores, curves and baselines.

    Args:
        scenario: private records, network and public records.
        search: result on the records of ``truth``, in its order, with any number of targets.
        truth: records of the updates ``[T, B, ...]``; those of an update come in any order.
        labels: labels that the attack had ``[T, B]``; None where it had none.
        others: scores besides those of the records.
        warnings: why an update may not mean a gradient.
        lpips: network that scores images too.
        rounds: scores of single epochs.
    """
    scorer = scenario.scorer(lpips)
    batches = search.x.reshape(truth.shape)
    order = true_order(batches, truth)
    rows, sure = reordered(batches, order), search.confidence
    guesses = scenario.baselines.guesses(truth, labels)
    guessed = _guess_scores(scenario)
    figures = scorer.scores(rows, scenario.x)
    if scenario.pixels is not None:
        figures = _with_recognisable(figures, guessed[PSNR])
    figures |= cell_scores(scenario, batches, truth, sure)
    return Rebuilt(
        scorer.in_units(rows),
        scorer.in_units(scenario.x),
        {**figures, **others},
        curves_of(scenario, search, truth),
        search.seconds_per_iteration,
        warnings,
        chance=_means(guessed),
        baselines={
            name: {
                **scorer.scores(x, scenario.x),
                **cell_scores(scenario, x.reshape(truth.shape), truth),
            }
            for name, x in guesses.items()
        },
        rounds=rounds or {},
        confidence=None if sure is None else reordered(sure, order),
        layer="" if search.layer is None else search.layer.layer,
        singled_out=singled_out(batches, truth, scenario.y, scenario.public),
    )


def _with_recognisable(scores: dict[str, Tensor], guess: Tensor) -> dict[str, Tensor]:
    """Return the scores, with whether each image can be recognised and a guess could not.

    Args:
        scores: scores of images by metric.
        guess: PSNR of the mean colour for each image ``[N]``.
    """
    found = scores[PSNR] >= torch.maximum(guess + PARTS_DB, torch.full_like(guess, CLEAR_DB))
    return {PSNR: scores[PSNR], RECOGNISABLE: found.double(), **scores}


def cell_scores(
    scenario: Scenario, x: Tensor, truth: Tensor, confidence: Tensor | None = None
) -> dict[str, Tensor]:
    """Return the scores of rows by TabLeak's rule; empty for other records.

    Args:
        scenario: private records, with the columns of a table.
        x: rebuilt rows ``[T, B, D]``, in any order.
        truth: true rows ``[T, B, D]``.
        confidence: confidence of each cell ``[T, B, C]``, in the order of ``x``.

    Returns:
        The share of right cells of each record ``[N]``; with a confidence that differs between
        cells also the shares of the most and the least confident cells, one per update ``[T]``.
    """
    schema = scenario.schema
    if schema is None:
        return {}
    hits, order = cells_right(x, truth, schema)
    scores = {CELLS: hits.double().mean(-1).flatten()}
    if confidence is None:
        return scores
    sure = reordered(confidence, order).view(hits.shape)
    for kind, named in (("category", "categories"), ("number", "numbers")):
        own = [at for at, one in enumerate(schema.columns) if one.kind == kind]
        right, confident = hits[..., own].flatten(1), sure[..., own].flatten(1)
        if own and bool((confident.amax(1) > confident.amin(1)).all()):
            found = sure_cells(right, confident)
            scores |= {f"{MOST_SURE}: {named}": found.most, f"{LEAST_SURE}: {named}": found.least}
    return scores


def chance_of(scenario: Scenario) -> dict[str, float]:
    """Return by metric the mean score of a guess that uses no gradient."""
    return _means(_guess_scores(scenario))


def _guess_scores(scenario: Scenario) -> dict[str, Tensor]:
    guess = scenario.guess.expand_as(scenario.x)
    scores = scenario.scorer().scores(guess, scenario.x)
    if scenario.schema is not None:  # Equal rows need no order.
        scores[CELLS] = same_cells(guess, scenario.x, scenario.schema).double().mean(-1)
    return scores


def _means(scores: Scores) -> dict[str, float]:
    return {name: float(values.mean()) for name, values in scores.items()}


def measurements_of(attempt: Attempt, data: str, rebuilt: Rebuilt) -> list[Measurement]:
    """Return one measurement for each figure of an attempt.

    Single epochs are rounds; the figures of all updates together are accumulated.

    Args:
        attempt: the attempt.
        data: name of the data.
        rebuilt: its records and scores.
    """
    spec = attempt.spec
    seconds = rebuilt.seconds_per_iteration * max(attempt.attack.iterations, 1)
    each = seconds * spec.records_per_update / max(rebuilt.count, 1)
    one = Estimate(each, each, each, 1, unit="s")
    time = _measurement(spec, attempt.attack, attempt.name, data, SECONDS, one)
    rung = {"rung": attempt.rung} if attempt.rung else {}
    layer = {LAYER: rebuilt.layer} if rebuilt.layer else {}
    short = rebuilt.scores.get(FELL_SHORT)
    unfinished = dict([UNFINISHED]) if short is not None and bool(short.any()) else {}
    if not attempt.defense_of_means.is_known:
        unfinished |= dict([NOT_KNOWN])
    time = replace(
        time,
        label=str(spec.label),
        defense=attempt.defense,
        knowledge=attempt.knowledge,
        details={
            **time.details,
            **rung,
            **layer,
            **unfinished,
            **(attempt.rules.words if spec.epochs > 1 else {}),
        },
        seconds=seconds,
    )
    sets: list[tuple[int | str, Scores]] = [(ACCUMULATED, rebuilt.scores), *rebuilt.rounds.items()]
    scored = [
        replace(
            time,
            metric=name,
            round=when,
            estimate=_estimate(attempt, name, values),
            chance=rebuilt.chance.get(name, 0.0),
            curve=rebuilt.curves.get(name) if when == ACCUMULATED else None,
            seconds=seconds if when == ACCUMULATED else 0.0,
        )
        for when, scores in sets
        for name, values in scores.items()
    ]
    if rebuilt.gain is not None:
        gain = mean_estimate(rebuilt.gain.double().numpy(), unit="dB")
        scored.append(replace(time, metric=GAIN, estimate=gain, seconds=0.0))
    curve = rebuilt.curves.get(LOSS)
    if not curve:  # Nothing was searched for, or the loss never was finite.
        return [*scored, time]
    loss = Estimate(curve[-1][1], curve[-1][1], curve[-1][1], rebuilt.count)
    return [*scored, time, replace(time, metric=LOSS, estimate=loss, curve=curve)]


def measurements_of_update(
    received: Received, spec: InversionSpec, method: Method, name: str
) -> tuple[Measurement, ...]:
    """Return what exists without true records: loss, match of the update, sureness of labels.

    Args:
        received: the rebuilt records.
        spec: settings of the question.
        method: the attack.
        name: name of the update.
    """
    loss = Estimate(received.loss, received.loss, received.loss, len(received.x))
    assumed = {ASSUMED: "; ".join(received.assumed)} if received.assumed else {}
    seconds = received.seconds_per_iteration * max(method.iterations, 1)
    found = _measurement(spec, method, spec.method[0], name, LOSS, loss)
    layer = {} if received.layer is None else {LAYER: received.layer.layer}
    details = {**found.details, **assumed, **layer}
    found = replace(found, curve=received.curve, seconds=seconds, details=details)
    figures = [found]
    others = {
        MATCHED: received.matched,
        LABEL_RESIDUAL: received.label_residual,
        CERTIFIED: received.certified,
        LAYER_CERTIFIED: None if received.layer is None else float(received.layer.certified),
    }
    for metric, value in others.items():
        if value is not None:
            one = Estimate(value, value, value, 1, unit=METRICS[metric].unit)
            own = details
            if metric == MATCHED and received.aligned is not None:
                own = {**details, ALIGNED: f"{received.aligned:.4f}"}
            figures.append(
                replace(found, metric=metric, estimate=one, details=own, curve=None, seconds=0.0)
            )
    return tuple(figures)


def _estimate(attempt: Attempt, name: str, values: Tensor) -> Estimate:
    metric, plain = metric_named(name, METRICS), values.detach().cpu().double().numpy()
    # Known labels are right by definition: nothing was measured.
    is_given = name == LABEL_ACCURACY and attempt.spec.labels == KNOWN
    if metric.is_share and not is_given:
        return share_estimate(plain)
    return mean_estimate(plain, unit=metric.unit, bounds=metric.bounds)


def _measurement(
    spec: InversionSpec, method: Method, name: str, data: str, metric: str, estimate: Estimate
) -> Measurement:
    """Return a figure of all updates together, without a defense; ``name`` is the method's."""
    context = CellContext(
        question=NAME, dataset=data, secret="records", adversary=name, seed=spec.seed
    )
    details = {"settings": method.described, "labels": spec.labels}
    return context.measurement(metric, estimate, details=details)
