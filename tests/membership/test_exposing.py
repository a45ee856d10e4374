"""A planted vulnerable member stands first, and a run without a leak names nobody."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from leakgauge.core.rng import stream
from leakgauge.membership.question import QUESTION
from leakgauge.membership.run.exposing import CALIBRATED, members_test
from leakgauge.membership.spec import MembershipSpec
from leakgauge.report.exposure import exposure_sentence, least_named
from leakgauge.results.exposure import Exposure
from leakgauge.results.record_tests import RecordTest
from leakgauge.runs.audit import describe, prepare_all, run_audit
from leakgauge.runs.exposure import exposures_of
from leakgauge.runs.question import Silent
from support.sources import table_source

SETTINGS = {"adversary": ("loss", "rmia"), "hidden": (32,), "lr": 0.01, "batch_size": 16}


def people(seed: int, n: int = 600) -> pd.DataFrame:
    """Return a table whose label follows the height, but for a little noise."""
    rng = stream(seed, "exposure")
    height = rng.normal(170, 9, size=n)
    rich = height + rng.normal(0, 3, size=n) > 170
    return pd.DataFrame(
        {
            "height": height,
            "age": rng.integers(18, 90, size=n),
            "town": rng.choice(["a", "b", "c"], size=n),
            "income": np.where(rich, "high", "low"),
        }
    )


def asked(frame: pd.DataFrame, seed: int, rounds: int) -> dict:
    spec = MembershipSpec(data="people", label="income", seed=seed, rounds=rounds, **SETTINGS)
    return prepare_all({QUESTION.name: (QUESTION, spec)}, source=table_source(frame))


def exposure(folder: Path, prepared: dict) -> Exposure:
    described = describe("audit", prepared)
    audit = run_audit(folder, described, prepared, progress=Silent(), workers=1)
    (found,) = exposures_of(audit)
    return found


def planted(folder: Path, seed: int, rounds: int = 60) -> tuple[int, Exposure]:
    """Return the row of a member with a rare town and the wrong label for its height."""
    frame = people(seed)
    splits = asked(frame, seed, rounds)[QUESTION.name].prepared.roles.splits
    row = int(splits[0].target_members[0])
    frame.loc[row, ["height", "town", "income"]] = [200.0, "z", "low"]
    return row, exposure(folder / str(seed), asked(frame, seed, rounds))


def test_a_planted_record_stands_first(tmp_path: Path) -> None:
    row, found = planted(tmp_path, 0, rounds=25)
    assert found.rows[0] == row
    assert CALIBRATED in [one.adversary for one in found.tests]
    assert len(found.rows) == 150, "every member is tested against as many others"


@pytest.mark.slow
def test_a_planted_record_stands_first_in_9_of_10_seeds(tmp_path: Path) -> None:
    found = [planted(tmp_path, seed) for seed in range(10)]
    places = [one.rows.tolist().index(row) + 1 for row, one in found]
    print(f"first in {places.count(1)} of 10; places {places}")
    assert places.count(1) >= 9


@pytest.mark.slow
def test_without_training_nobody_is_named_in_95_percent_of_runs(tmp_path: Path) -> None:
    """A rate of almost 0 leaves the model as it is, so that members are as unknown as others."""
    runs, alarms = 40, 0
    for seed in range(runs):
        prepared = asked(people(seed), seed, 1)
        one = prepared[QUESTION.name]
        still = replace(one.prepared, spec=replace(one.spec, lr=1e-12))
        alarms += bool(
            exposure(
                tmp_path / str(seed), {QUESTION.name: replace(one, prepared=still)}
            ).named.any()
        )
    print(f"named somebody in {alarms} of {runs} runs")
    assert stats.binomtest(alarms, runs, 0.05, alternative="greater").pvalue > 0.01


def the_test(scores: np.ndarray, member: np.ndarray, users: np.ndarray | None = None) -> RecordTest:
    rows = np.arange(len(scores))
    return members_test(scores, member, rows, users, adversary="loss", versus="others")


def test_scores_of_chance_name_nobody_in_95_percent_of_runs() -> None:
    member, alarms = np.arange(2400) < 400, 0
    for seed in range(300):
        found = the_test(stream(seed, "chance").normal(size=2400), member)
        alarms += bool((found.adjusted <= 0.05).any())
    assert stats.binomtest(alarms, 300, 0.05, alternative="greater").pvalue > 1e-3


def test_users_are_tested_by_their_mean_score() -> None:
    scores = np.array([3.0, 5.0, 9.0, 1.0, 2.0, 0.0])
    member, users = np.arange(6) < 3, np.array([4, 4, 6, 7, 8, 8])
    found = the_test(scores, member, users)
    assert found.rows.tolist() == [0, 1, 2]
    assert found.p_value.tolist() == pytest.approx([1 / 3] * 3), "users 7 and 8 have 1 and 1"
    assert found.others.tolist() == [2, 2, 2]
    assert found.adjusted.tolist() == pytest.approx([1 / 3] * 3), "two users, not three records"


def test_the_report_says_how_much_a_test_needs_to_name_anybody() -> None:
    member = np.arange(300) < 100
    found = the_test(np.zeros(300), member)
    assert least_named(found, tests=1) == "10 records above all others", "100 / 201 / 0.05"
    few = the_test(np.where(np.arange(30) < 15, 9.0, 0.0), np.arange(30) < 15)
    assert least_named(few, 1) == "none: too few others"
    said = exposure_sentence(Exposure((found,)))
    assert said == "None of the 100 attacked records is named above chance."
    said = exposure_sentence(Exposure((few,)))
    assert said == (
        "None of the 15 attacked records could be named, whatever leaks: 15 other records to "
        "compare with are too few. To name any, attack fewer records or give more data."
    ), "all 15 score above all others, and no p value is below 1/16"
    both = exposure_sentence(Exposure((found, replace(few, ask="reconstruction"))))
    assert both == (
        "None of the 100 attacked records is named above chance; reconstruction could name none, "
        "for too few others."
    )
