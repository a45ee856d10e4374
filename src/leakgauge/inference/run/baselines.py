"""Baselines beside an adversary: what is known of the secret without any gradient.

A batch's labels, or the means of its features, may tell the secret by themselves. An AUROC of
gradients that is no higher says nothing of gradients.
"""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from leakgauge.core.rng import stream
from leakgauge.core.types import Dataset
from leakgauge.inference.adversaries.adversary import with_prior
from leakgauge.inference.adversaries.calibration import two_sided
from leakgauge.inference.games.users import UserInference
from leakgauge.inference.run.shadows import shadow_of_round
from leakgauge.inference.run.stage import Stage
from leakgauge.results.scores import FEATURES_ALONE, LABELS_ALONE

Floats = NDArray[np.float64]

Summary = Callable[[Dataset, Tensor], Floats]
"""(records, batches ``[n, B]``) -> what is seen of each batch ``[n, k]``."""

BATCHES = 2000
"""Shadow batches that a baseline learns from."""

CHUNK = 2**24
"""Numbers of the features of batches that are held at once."""

INVERSE_PENALTY = 0.01
"""Scikit-learn's C, on standardised sums."""

SMOOTHED = 0.5
"""Counts of each label that a candidate's batch is taken to have beside its own."""


def baselines(stage: Stage) -> Mapping[str, Floats]:
    """Return log posteriors ``[n, m]`` of the trials by metric, from labels and features alone.

    The trials are those of the first round. In user inference, where candidates differ in each
    trial, only labels are compared: those of the batch with those of a candidate's other records.
    """
    if not torch.is_floating_point(stage.private.y) and stage.private.y.ndim == 1:
        labels: Summary | None = _label_counts(int(stage.private.y.max()) + 1)
    else:
        labels = None
    if stage.trials.candidates is not None and isinstance(stage.game, UserInference):
        return {} if labels is None else {LABELS_ALONE: _of_candidates(stage, labels)}
    summaries = {LABELS_ALONE: labels, FEATURES_ALONE: _feature_means}
    return {
        name: _learned(stage, summary) for name, summary in summaries.items() if summary is not None
    }


def _learned(stage: Stage, summary: Summary) -> Floats:
    """Logistic regression on shadow batches."""
    settings = stage.settings
    shadow = shadow_of_round(stage, 1, {})
    rng = stream(settings.seed, stage.game.name, "baseline")
    rows, secret = shadow.draw(BATCHES, rng=rng)
    seen = summary(stage.public, torch.from_numpy(rows))
    regression = LogisticRegression(C=INVERSE_PENALTY, max_iter=1000)
    model = make_pipeline(StandardScaler(), regression).fit(seen, secret)
    judged = model.decision_function(summary(stage.trials.pool, stage.trials.rows.cpu()))
    return with_prior(two_sided(judged), stage.log_prior)


def _of_candidates(stage: Stage, labels: Summary) -> Floats:
    """The likelihood of a batch's labels, drawn as those of each candidate's batch."""
    trials = stage.trials
    assert trials.candidates is not None
    seen = labels(trials.pool, trials.rows.cpu())
    held = labels(trials.candidates.pool, trials.candidates.rows.cpu()) + SMOOTHED
    log_share = np.log(held / held.sum(axis=1, keepdims=True))
    of_candidates = log_share[trials.candidates.index.cpu().numpy()]
    return with_prior(np.einsum("nk,nmk->nm", seen, of_candidates), stage.log_prior)


def _label_counts(classes: int) -> Summary:
    def counts(data: Dataset, rows: Tensor) -> Floats:
        labels = data.y.cpu()[rows]
        counted: Floats = torch.stack(
            [(labels == one).sum(dim=1) for one in range(classes)], dim=1
        ).numpy()
        return counted.astype(np.float64)

    return counts


def _feature_means(data: Dataset, rows: Tensor) -> Floats:
    flat = data.x.cpu().flatten(1)
    size = max(1, CHUNK // (flat.shape[1] * rows.shape[1]))
    means = [flat[some].mean(dim=1) for some in torch.split(rows, size)]
    found: Floats = torch.cat(means).double().numpy()
    return found
