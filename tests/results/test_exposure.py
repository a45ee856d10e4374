"""Tests of single records: correction, table, and what they name where nothing leaks."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from leakgauge.core.files import DamagedError
from leakgauge.core.rng import stream
from leakgauge.data import Roles
from leakgauge.data.table import make_table
from leakgauge.results.exposure import NAMED, NOT_ATTACKED, exposures
from leakgauge.results.record_tests import (
    ANY,
    RECORD_TESTS_FILE,
    SHARED,
    RecordTest,
    against_others,
    corrected,
    keep_record_tests,
    read_record_tests,
)

NONE = np.empty(0)


def one_test(rows, p_value, *, ask="membership", others=999, **more) -> RecordTest:
    n = len(rows)
    words = {"adversary": "loss", "versus": "others", "figure": NONE, "guess": NONE, **more}
    words.setdefault("excess", -np.asarray(p_value))
    words.setdefault("unit", np.empty(0, dtype=np.int64))
    counts = np.full(n, others)
    return RecordTest(
        ask=ask, rows=np.array(rows), p_value=np.array(p_value), others=counts, **words
    )


@pytest.mark.parametrize(("dependence", "name"), [(SHARED, "fdr_bh"), (ANY, "holm")])
def test_corrections_are_those_of_statsmodels(dependence: str, name: str) -> None:
    rng = stream(0, "corrections")
    for n in (1, 2, 7, 300):
        p_value = rng.integers(1, 50, n) / 1000  # with ties
        found = corrected(p_value, dependence)
        assert np.allclose(found, multipletests(p_value, method=name)[1], atol=1e-12)


def test_p_values_are_exact_ranks() -> None:
    rng = stream(0, "ranks")
    scores, others = rng.integers(0, 9, 40).astype(float), rng.integers(0, 9, 60).astype(float)
    p_value, _ = against_others(scores, others)
    literal = [(1 + sum(o >= s for o in others)) / 61 for s in scores]
    assert p_value.tolist() == literal


def placebo(seed: int, *, leaks: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return which of 30 records three attacks of pure chance name, and which of them leak."""
    rng = stream(seed, "placebo")
    strong = np.arange(30) < leaks
    tests = []
    for at, dependence in enumerate((SHARED, SHARED, ANY)):
        scores = rng.normal(size=30) + 12.0 * strong
        p_value, excess = against_others(scores, rng.normal(size=1999))
        more = {"ask": str(at), "dependence": dependence, "excess": excess, "others": 1999}
        tests.append(one_test(np.arange(30), p_value, **more))
    (found,) = exposures(tests)
    return found.rows[found.named.any(axis=1)], strong


def test_without_a_leak_any_record_is_named_in_at_most_1_of_20_runs() -> None:
    runs = 800
    alarms = sum(len(placebo(seed)[0]) > 0 for seed in range(runs))
    assert stats.binomtest(alarms, runs, 0.05, alternative="greater").pvalue > 1e-3
    assert alarms > runs * 0.02, "a bound that never is reached would hide what it should name"


def test_planted_records_are_named_and_few_others() -> None:
    wrong = []
    for seed in range(200):
        named, strong = placebo(seed, leaks=5)
        assert set(np.flatnonzero(strong)) <= set(named)
        wrong.append(np.mean(named >= 5))
    assert np.mean(wrong) <= 0.05


def test_the_table_joins_by_row_the_worst_first() -> None:
    member = one_test([7, 3, 9], [0.001, 0.2, 0.5], dependence=SHARED)
    figure = {"figure": np.array([0.9, 0.4]), "guess": np.array([0.5, 0.5])}
    rebuilt = one_test([9, 4], [0.001, 0.3], ask="reconstruction", **figure)
    (found,) = exposures([member, rebuilt])
    assert found.rows.tolist() == [9, 7, 4, 3], "0.001 x 2 records x 2 tests, then x 3 x 2"
    table = found.to_pandas()
    assert table.adjusted_p.tolist() == pytest.approx([0.004, 0.006, 0.6, 0.6])
    assert table["membership: status"].tolist() == ["not named", NAMED, NOT_ATTACKED, "not named"]
    assert table["reconstruction: figure"].fillna(-1).tolist() == [0.9, -1, 0.4, -1]
    counts = [(one.attacked, one.named, one.alone, one.also_attacked) for one in found.overlaps]
    assert counts == [(3, 1, 1, 0), (2, 1, 1, 1)], "row 9 was attacked twice, and named once"
    worst = found.most(1)[0]
    assert (worst.row, worst.figures[1].as_high, worst.figures[1].others) == (9, 0, 999)


def test_equal_p_values_are_ordered_by_the_excess() -> None:
    test = one_test([1, 2, 3], [0.1, 0.1, 0.1], excess=np.array([0.5, 2.0, 1.0]))
    assert exposures([test])[0].rows.tolist() == [2, 3, 1]


def test_records_of_one_user_count_once() -> None:
    p_value = np.array([0.01, 0.01, 0.01, 0.5])
    shared = one_test([0, 1, 2, 3], p_value, unit=np.array([5, 5, 5, 8]))
    assert shared.adjusted.tolist() == [0.02, 0.02, 0.02, 0.5]


def test_defenses_and_numberings_are_not_joined() -> None:
    rows = [0, 1], [0.1, 0.2]
    tests = [one_test(*rows), one_test(*rows, defense="sign"), one_test(*rows, numbering="other")]
    assert [(one.defense, one.numbering) for one in exposures(tests)] == [
        ("none", "data"),
        ("sign", "data"),
        ("none", "other"),
    ]


def test_a_file_holds_the_tests_and_damage_is_noticed(tmp_path) -> None:
    assert read_record_tests(tmp_path) == []
    keep_record_tests(tmp_path, [one_test([4, 2], [0.1, 0.2], secret="sex", assumes="A thing.")])
    (found,) = read_record_tests(tmp_path)
    assert (found.secret, found.assumes, found.rows.tolist()) == ("sex", "A thing.", [4, 2])
    path = tmp_path / RECORD_TESTS_FILE
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DamagedError, match="damaged"):
        read_record_tests(tmp_path)


def test_rows_are_those_of_the_users_table_where_some_are_left_out() -> None:
    frame = pd.DataFrame({"age": range(8), "ill": [0, 1, None, 1, 0, 1, 0, 1]}, index=range(10, 18))
    table = make_table(frame, Roles(label="ill"), drop_missing=True)
    assert table.rows.tolist() == [0, 1, 3, 4, 5, 6, 7]
    assert table.features.age.tolist() == table.rows.tolist()
    rare = frame.assign(ill=["a", "b", "c", "a", "b", "a", "b", "a"])
    kept = make_table(rare, Roles(label="ill", merge_rare=2))
    assert kept.rows.tolist() == [0, 1, 3, 4, 5, 6, 7]
