"""Utility of the trained model, by the metric that fits its labels."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from leakgauge.core.losses import is_numeric_loss
from leakgauge.core.types import Dataset, Params, Task
from leakgauge.defenses import deployed
from leakgauge.results import intervals, scores, utility
from leakgauge.results.measurements import Estimate
from leakgauge.results.statistics import Ints
from leakgauge.training.sgd import outputs_of

BLOCKS = 10_000
"""Largest number of groups of records that are resampled; beyond it, groups have several records.

Independent records give the same interval in groups, and memory does not grow with them.
"""


@dataclass(frozen=True)
class Utility:
    """A figure of the trained model on the test records.

    Attributes:
        metric: ``"accuracy"`` of classes or of one yes-or-no label, ``"macro_f1"`` of several such
            labels, ``"r2"`` of numbers.
        estimate: its value with an interval.
        chance: value of the best constant answer: the most frequent class, every label, the mean.
        balanced: accuracy in which each class counts alike; chance is one over their number.
        classes: number of classes of the test records; 0 for other labels.
        auroc: mean AUROC of each class against all others; None unless requested.
    """

    metric: str
    estimate: Estimate
    chance: float
    balanced: Estimate | None = None
    classes: int = 0
    auroc: Estimate | None = None


def utility_of(
    task: Task, params: Params, data: Dataset, *, rng: np.random.Generator, ranked: bool = False
) -> Utility | None:
    """Return the utility of the model; None where its outputs do not match the labels.

    Labels of 0 and 1 count as yes or no, unless the loss is for numbers. Outputs that lie within
    0 and 1 are probabilities then, and others are logits.

    Args:
        task: the model and its loss.
        params: parameters of the trained model.
        data: records outside its training data.
        rng: draws the resamples.
        ranked: also compute the AUROC of classes, whose interval takes about a second.
    """
    outputs = outputs_of(deployed(task), params, data)
    if outputs is None:
        return None
    y, users = data.y, data.users
    block = np.arange(len(y)) % BLOCKS if users is None else users.cpu().numpy()
    if y.ndim == 1 and not y.is_floating_point() and outputs.ndim == 2 and outputs.shape[1] > 1:
        odds = _log_odds(outputs) if ranked else None
        return _classes(y, outputs.argmax(dim=1), block, rng, odds)
    if outputs.shape[:1] != y.shape[:1] or outputs.numel() != y.numel():
        return None
    y, outputs = y.reshape(len(y), -1), outputs.reshape(len(y), -1)
    if is_numeric_loss(task.loss) or not bool(((y == 0) | (y == 1)).all()):
        return _numbers(y, outputs, block, rng)
    cut = 0.5 if bool(((outputs >= 0) & (outputs <= 1)).all()) else 0.0
    if y.shape[1] == 1:
        odds = outputs.double() if ranked else None
        return _classes(y[:, 0].long(), (outputs[:, 0] > cut).long(), block, rng, odds)
    return _labels(y, outputs > cut, block, rng)


def _numbers(y: Tensor, outputs: Tensor, block: Ints, rng: np.random.Generator) -> Utility | None:
    truth, predicted = (values.double().cpu().numpy() for values in (y, outputs))
    estimate = utility.r2(truth, predicted, block, rng=rng)
    return None if estimate is None else Utility(scores.R2, estimate, 0.0)


def _labels(y: Tensor, named: Tensor, block: Ints, rng: np.random.Generator) -> Utility:
    estimate = utility.macro_f1((y == 1).cpu().numpy(), named.cpu().numpy(), block, rng=rng)
    share = y.double().mean(dim=0)
    return Utility(scores.MACRO_F1, estimate, float((2 * share / (1 + share)).mean()))


def _log_odds(outputs: Tensor) -> Tensor:
    """Return the log-odds of each class against all others ``[n, k]``; for two, of the second."""
    logits = outputs.double()
    if logits.shape[1] == 2:
        return logits[:, 1:] - logits[:, :1]
    others = [
        torch.cat([logits[:, :one], logits[:, one + 1 :]], dim=1).logsumexp(dim=1)
        for one in range(logits.shape[1])
    ]
    return logits - torch.stack(others, dim=1)


def _classes(
    y: Tensor, predicted: Tensor, block: Ints, rng: np.random.Generator, log_odds: Tensor | None
) -> Utility:
    correct = (predicted == y).cpu().numpy()
    counts = torch.bincount(y)
    accuracy = intervals.share(correct, block, rng=rng)
    truth, named = y.cpu().numpy(), predicted.cpu().numpy()
    balanced = utility.balanced_accuracy(truth, named, block, rng=rng)
    chance = float(counts.max()) / len(correct)
    ranked = None if log_odds is None else _ranked(truth, log_odds, block, rng)
    return Utility(scores.ACCURACY, accuracy, chance, balanced, int((counts > 0).sum()), ranked)


def _ranked(
    truth: Ints, log_odds: Tensor, block: Ints, rng: np.random.Generator
) -> Estimate | None:
    """Return the AUROC of classes from log-odds ``[n, k]``; one column is class 1 of two."""
    columns = log_odds.shape[1]
    classes = np.arange(columns) if columns > 1 else np.ones(1)
    finite = log_odds.nan_to_num().cpu().numpy()
    return utility.class_auroc(truth[:, None] == classes, finite, block, rng=rng)
