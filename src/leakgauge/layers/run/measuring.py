"""Turns attacks and properties of layers into measurements."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from leakgauge.core.rng import stream
from leakgauge.gradients.walk import Layer
from leakgauge.layers.catalog import QUESTION, VOTES
from leakgauge.layers.correlation import partial_correlation, pearson
from leakgauge.layers.information import BITS, SHARE, in_unit, v_information
from leakgauge.layers.metrics import (
    AGAINST,
    CORRELATION,
    INFORMATION,
    INFORMATION_NATS,
    INFORMATION_SHARE,
    LOG_SIZE,
    PARTIAL,
    SIZE,
    of_layer,
)
from leakgauge.layers.run.judging import LayerJudgement
from leakgauge.layers.run.observing import AttackerView
from leakgauge.layers.spec import LayersSpec
from leakgauge.results import scores
from leakgauge.results.information import NATS
from leakgauge.results.measurements import (
    ACCUMULATED,
    HEADLINE,
    CellContext,
    Estimate,
    Measurement,
)
from leakgauge.results.scores import AUROC, ScoredTrials

UNITS = {INFORMATION: BITS, INFORMATION_NATS: NATS, INFORMATION_SHARE: SHARE}


def attack_measurements(
    spec: LayersSpec,
    view: AttackerView,
    cell: CellContext,
    judgements: Sequence[LayerJudgement],
    chosen: LayerJudgement,
    about: Layer,
) -> Iterator[Measurement]:
    """Yield the figures of each attack on a layer, and those of the chosen one as headline."""
    for one in judgements:
        details = {**facts_of(about), "gain on held-out batches, nats": f"{one.gain:.4f}"}
        for metric, (estimate, chance) in scored(spec, view, one).items():
            name = of_layer(metric, one.layer)
            figure = cell.measurement(
                name, estimate, chance=chance, adversary=one.adversary, details=details
            )
            yield figure
            if one is chosen:
                yield replace(figure, round=HEADLINE)


def scored(
    spec: LayersSpec, view: AttackerView, one: LayerJudgement
) -> dict[str, tuple[Estimate, float]]:
    """Return an attack's scores and its V-information with their chance levels, by metric."""
    trials = scored_trials(spec, view, one)
    majority = float(np.exp(view.log_prior.max()))
    rng = stream(spec.seed, QUESTION, "bootstrap")
    chance = scores.chance(trials.truth, majority)
    estimates = scores.score(trials, majority=majority, rng=rng)
    found = {metric: (estimate, chance[metric]) for metric, estimate in estimates.items()}
    nats = v_information(
        trials,
        view.log_prior,
        # the paper's option does not use held-out batches
        ignorant=spec.calibration != VOTES and one.gain <= 0,
        rng=stream(spec.seed, QUESTION, "bootstrap"),
    )
    for metric, unit in UNITS.items():
        found[metric] = (in_unit(nats, unit, view.log_prior), 0.0)
    return found


def scored_trials(spec: LayersSpec, view: AttackerView, one: LayerJudgement) -> ScoredTrials:
    """Return the trials with an attack's log posteriors."""
    return ScoredTrials(
        view.trials.secret.cpu().numpy(),
        one.posterior(view.log_prior, spec.calibration),
        view.trials.block.cpu().numpy(),
    )


def whole_measurements(
    spec: LayersSpec, view: AttackerView, cell: CellContext, one: LayerJudgement
) -> Iterator[Measurement]:
    """Yield the figures of the attack that sees all layers, the headline of the question."""
    trials = scored_trials(spec, view, one)
    for metric, (estimate, chance) in scored(spec, view, one).items():
        plain = cell.measurement(metric, estimate, chance=chance, adversary=one.adversary)
        if metric == AUROC:
            plain = replace(plain, curve=scores.roc(trials), held_out=None)
        yield plain
        yield replace(plain, round=HEADLINE)


def facts_of(layer: Layer) -> dict[str, str]:
    """Return the details that describe a layer."""
    return {"layer": layer.name, "kind": layer.kind, "order": str(layer.order)}


def correlations(measurements: Sequence[Measurement], cell: CellContext) -> Iterator[Measurement]:
    """Yield the correlation of each measure with the AUROC over the layers of this run.

    The partial correlations given the log of the layers' sizes follow.
    """
    of = {metric: by_layer(measurements, metric) for metric in (AUROC, *AGAINST)}
    of[LOG_SIZE] = {name: float(np.log(value)) for name, value in of[SIZE].items()}
    for metric in AGAINST:
        names = [name for name in of[AUROC] if name in of[metric] and name in of[LOG_SIZE]]
        aurocs, values, sizes = (
            [of[key][name] for name in names] for key in (AUROC, metric, LOG_SIZE)
        )
        found = {CORRELATION: pearson(values, aurocs)}
        if metric not in (SIZE, LOG_SIZE):
            found[PARTIAL] = partial_correlation(values, aurocs, sizes)
        for kind, one in found.items():
            if one is not None and np.isfinite([one.r, one.low, one.high]).all():
                estimate = Estimate(one.r, one.low, one.high, one.n)
                details = {"t": f"{one.t:.2f}", "p": f"{one.p:.3g}"}
                yield cell.measurement(f"{kind}_{metric}", estimate, details=details)


def by_layer(measurements: Sequence[Measurement], metric: str) -> Mapping[str, float]:
    """Return a metric's value by layer; attack metrics are those of the chosen attack."""
    of_attacks = {one.metric for one in measurements if one.round == HEADLINE}
    return {
        one.details["layer"]: one.estimate.value
        for one in measurements
        if one.metric.partition(": ")[0] == metric
        and "layer" in one.details
        and one.round == (HEADLINE if one.metric in of_attacks else ACCUMULATED)
    }
