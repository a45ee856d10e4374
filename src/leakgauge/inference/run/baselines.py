"""Baselines: inference of the secret without any gradient.

The labels of a batch, or the means of its features, may reveal the secret. An AUROC of gradients
that is not higher is not evidence of leakage through gradients.
"""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from leakgauge.core.rng import stream
from leakgauge.core.types import Dataset
from leakgauge.inference.adversaries.adversary import with_prior
from leakgauge.inference.adversaries.calibration import two_sided
from leakgauge.inference.games.users import UserInference
from leakgauge.inference.run.observing import shadow_of_round
from leakgauge.inference.run.stage import GameStage
from leakgauge.results.scores import FEATURES_ALONE, LABELS_ALONE
from leakgauge.results.statistics import Floats

Summary = Callable[[Dataset, Tensor], Floats]
"""Maps records and batches ``[n, B]`` to features of each batch ``[n, k]``."""

BATCHES = 2000
"""Number of shadow batches that a baseline learns from."""

CHUNK = 2**24
"""Maximum number of feature values of batches that are held at once."""

INVERSE_PENALTY = 0.01
"""scikit-learn's C, on standardised features."""

TINY = 1e-12
"""Variance added to avoid division by 0 if labels are constant in every batch."""

SMOOTHED = 0.5
"""Count added to each label of a candidate's batch."""


def baselines(stage: GameStage) -> Mapping[str, Floats]:
    """Return log posteriors ``[n, m]`` of the trials by metric, from labels and features alone.

    The labels of a batch are reduced to counts of classes, or to means and standard deviations for
    numbers and for several labels per record.

    The trials are those of the first round. In user inference the candidates differ in each trial,
    so only labels are compared: those of the batch with those of a candidate's other records.
    """
    y = stage.private.y
    counted = not y.is_floating_point() and y.ndim == 1
    labels = _label_counts(int(y.max()) + 1) if counted else _label_moments
    if stage.trials.candidates is not None and isinstance(stage.game, UserInference):
        of_candidates = _of_counts if counted else _of_moments
        return {LABELS_ALONE: of_candidates(stage, labels)}
    summaries = {LABELS_ALONE: labels, FEATURES_ALONE: _feature_means}
    return {name: _learned(stage, summary) for name, summary in summaries.items()}


def _learned(stage: GameStage, summary: Summary) -> Floats:
    """Return log posteriors ``[n, m]`` of a logistic regression on shadow batches."""
    spec = stage.spec
    shadow = shadow_of_round(stage, 1, {})
    rng = stream(spec.seed, stage.game.name, "baseline")
    rows, secret = shadow.draw(BATCHES, rng=rng)
    seen = summary(stage.public, torch.from_numpy(rows))
    regression = LogisticRegression(C=INVERSE_PENALTY, max_iter=1000)
    model = make_pipeline(StandardScaler(), regression).fit(seen, secret)
    decision = model.decision_function(summary(stage.trials.pool, stage.trials.rows.cpu()))
    return with_prior(two_sided(decision), stage.log_prior)


def _of_counts(stage: GameStage, labels: Summary) -> Floats:
    """Return posteriors of labels drawn with the shares of each candidate's batch."""
    trials = stage.trials
    assert trials.candidates is not None
    seen = labels(trials.pool, trials.rows.cpu())
    held = labels(trials.candidates.pool, trials.candidates.rows.cpu()) + SMOOTHED
    log_share = np.log(held / held.sum(axis=1, keepdims=True))
    of_candidates = log_share[trials.candidates.index.cpu().numpy()]
    return with_prior(np.einsum("nk,nmk->nm", seen, of_candidates), stage.log_prior)


def _of_moments(stage: GameStage, labels: Summary) -> Floats:
    """Return posteriors of the mean label, normal around that of each candidate's batch."""
    trials = stage.trials
    assert trials.candidates is not None
    seen, _ = np.split(labels(trials.pool, trials.rows.cpu()), 2, axis=1)
    held, spread = np.split(labels(trials.candidates.pool, trials.candidates.rows.cpu()), 2, axis=1)
    variance = np.square(spread).mean(axis=0) + TINY
    of_candidates = held[trials.candidates.index.cpu().numpy()]
    apart = np.square(seen[:, None] - of_candidates) / (2 * variance / trials.rows.shape[1])
    return with_prior(-apart.sum(axis=2) / 2, stage.log_prior)


def _label_moments(data: Dataset, rows: Tensor) -> Floats:
    """Return the means of a batch's labels, then their standard deviations ``[n, 2 k]``."""
    labels = data.y.cpu().double().reshape(len(data), -1)[rows]
    return torch.cat([labels.mean(dim=1), labels.std(dim=1, correction=0)], dim=1).numpy()


def _label_counts(classes: int) -> Summary:
    def counts(data: Dataset, rows: Tensor) -> Floats:
        labels = data.y.cpu()[rows]
        counted = [(labels == one).sum(dim=1) for one in range(classes)]
        return torch.stack(counted, dim=1).double().numpy()

    return counts


def _feature_means(data: Dataset, rows: Tensor) -> Floats:
    flat = data.x.cpu().flatten(1)
    flat = flat if flat.is_floating_point() else flat.double()
    size = max(1, CHUNK // (flat.shape[1] * rows.shape[1]))
    means = [flat[some].mean(dim=1) for some in torch.split(rows, size)]
    return torch.cat(means).double().numpy()
