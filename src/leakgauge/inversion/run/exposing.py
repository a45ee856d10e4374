"""Tests of single records: do the rebuilt ones fit the attacked record better than others?"""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from leakgauge.core.types import Dataset
from leakgauge.inversion.metrics.table import COLUMNS, METRICS, PSNR, TOKEN_ACCURACY
from leakgauge.inversion.run.attempt import Attempt
from leakgauge.inversion.run.rebuilt import Rebuilt
from leakgauge.inversion.run.scenario import Scenario
from leakgauge.inversion.words import FIRST, NEAREST
from leakgauge.results.record_tests import SHARED, RecordTest

ASK = "reconstruction"
ROUNDING = 1e-4
"""Difference of two distances that counts as none."""

OTHERS = "other records of the same label"
IN_ORDER = "The records attacked are the first of the data, and count as drawn at random."


def singled_out(batches: Tensor, truth: Tensor, labels: Tensor, public: Dataset) -> Tensor:
    """Return how each true record fits the rebuilt ones of its update, among public records.

    A record's score is minus its distance to the nearest record that was rebuilt from its update.
    Public records of the same label are scored in the same way. Where the update tells nothing but
    labels, the true record is one of them: its rank is uniform, whatever the attack does.

    Args:
        batches: rebuilt records ``[T, B, ...]``, in any order.
        truth: true records ``[T, B, ...]``.
        labels: their labels ``[T * B]``; numbers and targets of tokens tell no classes apart.
        public: records that are not attacked, drawn as the true ones.

    Returns:
        p value, excess in standard deviations, number of public records, and number of the update,
        ``[4, T * B]``.
    """
    count = truth.shape[0] * truth.shape[1]
    found = torch.zeros(4, count, dtype=torch.float64)
    found[0] = 1.0
    found[3] = torch.arange(count) // truth.shape[1]
    in_classes = labels.dim() == 1 and not labels.is_floating_point()
    for at, (rebuilt, true) in enumerate(zip(batches, truth, strict=True)):
        scores, others = _fit(rebuilt, true), _fit(rebuilt, public.x)
        for place, score in enumerate(scores):
            row = at * truth.shape[1] + place
            same = others[(public.y == labels[row]).cpu()] if in_classes else others
            found[:3, row] = _ranked(score, same)
    return found


def _fit(rebuilt: Tensor, records: Tensor) -> Tensor:
    """Return minus the distance of each record ``[n, ...]`` to the nearest rebuilt one ``[n]``."""
    if len(records) == 0:
        return torch.zeros(0, dtype=torch.float64)
    pair = records.flatten(1), rebuilt.flatten(1)
    if not records.is_floating_point():  # tokens: the number of wrong ones
        gaps = torch.stack([(pair[0] != one).sum(1) for one in pair[1]], 1).double()
    else:
        gaps = torch.cdist(pair[0].double(), pair[1].double())
    return -gaps.nan_to_num(nan=torch.inf).amin(1).cpu()


def _ranked(score: Tensor, others: Tensor) -> Tensor:
    """Return p value, excess and number of others for one score."""
    if len(others) == 0 or not bool(score.isfinite()):
        return torch.tensor([1.0, 0.0, float(len(others))], dtype=torch.float64)
    finite = others[others.isfinite()]
    as_high = int((finite >= score - ROUNDING).sum())
    spread = float(finite.std(correction=0)) if len(finite) else 0.0
    excess = float(score - finite.max()) / (spread or 1.0) if len(finite) else 0.0
    ranked = [(1 + as_high) / (1 + len(others)), excess, float(len(others))]
    return torch.tensor(ranked, dtype=torch.float64)


def record_tests(
    scenario: Scenario, finished: Iterable[tuple[Attempt, Rebuilt]]
) -> list[RecordTest]:
    """Return the tests of the attacked records, one for each attempt.

    The p values of an update's records come from one set of public records and one distance, so
    that Benjamini and Hochberg's correction holds for them; each update is a family of its own.
    """
    return [_test(scenario, *one) for one in finished if one[1].singled_out is not None]


def _test(scenario: Scenario, attempt: Attempt, rebuilt: Rebuilt) -> RecordTest:
    assert rebuilt.singled_out is not None
    p_value, excess, others, update = rebuilt.singled_out.numpy()
    metric = next((one for one in (COLUMNS, TOKEN_ACCURACY, PSNR) if one in rebuilt.scores), "")
    figure = guess = np.empty(0)
    if metric:
        figure = rebuilt.scores[metric].double().cpu().numpy()
        guesses = [
            each[metric].double().cpu().numpy()
            for name, each in rebuilt.baselines.items()
            if name != NEAREST and metric in each
        ]
        guess = np.max(guesses, axis=0) if guesses else guess
    return RecordTest(
        ask=ASK,
        adversary=attempt.name,
        rows=scenario.rows,
        p_value=p_value,
        excess=excess,
        others=others.astype(np.int64),
        versus=OTHERS,
        defense=attempt.defense,
        knowledge=attempt.knowledge,
        figure=figure,
        guess=guess,
        metric=METRICS[metric].label if metric else "",
        unit=np.empty(0, dtype=np.int64),
        family=update.astype(np.int64),
        dependence=SHARED,
        assumes=IN_ORDER if scenario.drawn == FIRST else "",
    )
