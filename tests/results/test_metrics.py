"""A metric's bounds, and the tables of the questions."""

import math
from dataclasses import replace

import numpy as np
import pytest

from leakgauge.core.checks import InputError
from leakgauge.guarantee.metrics import METRICS as GUARANTEE
from leakgauge.inference.metrics import METRICS as INFERENCE
from leakgauge.inversion.metrics.table import METRICS as INVERSION
from leakgauge.results import roc, scores
from leakgauge.results.measurements import MOST, CellContext, Estimate
from leakgauge.results.metrics import Metric, metric_named, over_seeds, titles


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"title": ""}, "no title"),
        ({"title": "a", "low": 1.0, "high": 0.0}, "smaller one first"),
        ({"title": "a", "low": math.nan}, "smaller one first"),
        ({"title": "a", "chance": 2.0}, "chance 2.0; expected a value from 0 to 1"),
    ],
)
def test_a_metric_without_sense_is_refused(settings: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Metric(**settings)


def test_a_name_is_a_metric_of_one_question_only() -> None:
    assert len({*INFERENCE, *GUARANTEE, *INVERSION}) == sum(
        map(len, (INFERENCE, GUARANTEE, INVERSION))
    )


def test_bounds_are_what_the_metric_can_reach() -> None:
    """The worst and the best possible adversary; equal and very different pictures."""
    truth = np.array([0, 1, 0, 1])
    best = np.log(np.where(np.eye(2)[truth] > 0, 0.9, 0.1))
    reached = [
        scores.figures(scores.ScoredTrials(truth, lp, truth)) for lp in (best[:, ::-1], best)
    ]
    for name in (scores.AUROC, scores.TPR_AT_1_FPR, scores.SUCCESS):
        assert tuple(float(one[name]) for one in reached) == INFERENCE[name].bounds
    successes = [float(one[scores.SUCCESS]) for one in reached]
    advantages = tuple(scores.advantage(one, 0.5) for one in successes)
    assert advantages == INFERENCE[scores.ADVANTAGE].bounds
    assert INFERENCE[scores.AUROC].chance == roc.auroc(truth == 1, np.zeros(4))
    assert INVERSION["psnr"].bounds == (
        -math.inf,
        math.inf,
    )  # pixels from 0 to 1 may be missed by more
    assert INVERSION["lpips"].bounds == (0.0, math.inf)  # a distance
    assert INVERSION["ssim"].bounds == (-1.0, 1.0)  # a correlation


def test_a_single_column_is_bounded_as_all_columns_are() -> None:
    found = metric_named("columns: a: b", INVERSION)
    assert (found.title, found.bounds, found.headline) == ("columns: a: b", (0.0, 1.0), False)
    assert metric_named("psnr", INVERSION) is INVERSION["psnr"]
    assert "columns: a: b" not in titles(INVERSION)


UNTABLED = {"loss", "label_residual", "matched", "fell_short", "most_sure", "least_sure"}


def test_the_loss_has_no_column() -> None:
    assert titles(INVERSION)["psnr"] == "PSNR, dB"
    assert set(INVERSION) - set(titles(INVERSION)) == UNTABLED


def test_a_mean_over_seeds_stays_below_what_its_definition_allows() -> None:
    cell = CellContext(question="timeline", dataset="", seed=0)
    each = [
        cell.measurement("information", Estimate(value, 3.0, 4.0, 9), theory={MOST: 4.0})
        for value in (3.2, 4.0)
    ]
    unbounded = Metric(title="a", low=-math.inf, high=math.inf)
    assert over_seeds(each, unbounded).high == 4.0
    free = [replace(one, theory={}) for one in each]
    assert over_seeds(free, unbounded).high > 5
