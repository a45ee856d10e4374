"""Proportion inference: ranges of a share, and an ordered secret."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.linear_model import LogisticRegression

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.core.types import Schema
from leakgauge.inference import Forest, Logistic, Ordinal, ProportionInference, Ratio
from leakgauge.inference.adversaries.ordinal import log_differences
from leakgauge.inference.adversaries.stacking import held_out_scores
from leakgauge.inference.games.games import one_against_rest
from leakgauge.inference.games.mixing import Pure, bootstrap
from leakgauge.inference.run import audit
from leakgauge.inference.words import COUNT_RULES, FRESH, WITHIN
from leakgauge.results.measurements import Estimate
from support.synthetic import records, small_stage

FOREST = Forest(trees=30, batches=600)


def range_of(count: int, size: int, values: int) -> int:
    """The definition, in exact fractions: {0}, (0, 1/(m-1)], ..., ((m-2)/(m-1), 1]."""
    share = Fraction(count, size)
    return next(j for j in range(values) if share <= Fraction(j, values - 1))


@given(size=st.integers(2, 200), values=st.integers(2, 12), seed=st.integers(0, 99))
def test_every_count_lies_in_its_range(size: int, values: int, seed: int) -> None:
    mix, rng = Ratio(values, WITHIN), stream(seed, "ratio")
    secret = np.arange(values * 20) % values
    if size < values - 1:
        with pytest.raises(InputError, match="cannot distinguish"):
            mix.counts(secret, size, rng)
        return
    counts = mix.counts(secret, size, rng)
    assert (counts.sum(axis=1) == size).all()
    assert [range_of(k, size, values) for k in counts[:, 1].tolist()] == secret.tolist()
    batches = bootstrap([np.array([0]), np.array([1])], counts, rng)
    assert mix.secret_of(batches).tolist() == secret.tolist()


class Shares:
    """In place of a generator: 1 - u for given places u of the shares within their ranges."""

    def __init__(self, places: list[float]) -> None:
        self.places = np.array(places)

    def random(self, n: int) -> np.ndarray:
        assert n == len(self.places)
        return 1 - self.places


def test_floor_of_alpha_k_by_hand() -> None:
    """B = 128, m = 6: alpha = (j - 1 + u) / 5; alpha B = 25.6 (j - 1 + u), rounded down."""
    by_hand = [  # range j, place u, alpha B, count
        (0, 0.70, 0.0, 0),
        (1, 0.02, 0.512, 0),  # below its range, as the paper prints it
        (1, 0.04, 1.024, 1),
        (1, 1.00, 25.6, 25),
        (2, 0.01, 25.856, 25),  # the largest count of the range below
        (2, 0.02, 26.112, 26),
        (3, 0.50, 64.0, 64),
        (5, 1.00, 128.0, 128),
    ]
    secret, places, products, counts = zip(*by_hand, strict=True)
    assert products == pytest.approx([max(0, 25.6 * (j - 1 + u)) * (j > 0) for j, u, *_ in by_hand])
    rng = Shares(list(places))
    floored = Ratio(6).counts(np.array(secret), 128, rng)[:, 1]
    assert floored.tolist() == list(counts)
    within = Ratio(6, WITHIN).counts(np.array(secret), 128, rng)[:, 1]
    assert within.tolist() == [0, 1, 1, 25, 26, 26, 64, 128]
    each = [[1] * k + [0] * (128 - k) for k in (0, 1, 25, 26, 51, 52, 127, 128)]
    # 25 is [25, 26): .6 of it up to 25.6; 51 is [51, 52): .2 up to 51.2
    assert Ratio(6).secret_of(np.array(each)).tolist() == [0, 1, 1, 2, 3, 3, 5, 5]
    assert Ratio(6, WITHIN).secret_of(np.array(each)).tolist() == [0, 1, 1, 2, 2, 3, 5, 5]


def test_one_batch_in_25_6_of_the_lowest_range_has_no_record() -> None:
    counts = Ratio(6).counts(np.ones(200_000, dtype=np.int64), 128, stream(0, "floor"))[:, 1]
    assert (counts == 0).mean() == pytest.approx(1 / 25.6, abs=0.002)
    assert (counts == 25).mean() == pytest.approx(0.6 / 25.6, abs=0.002)
    assert counts.max() == 25


@pytest.mark.parametrize("rule", COUNT_RULES)
def test_the_share_is_uniform_within_its_range(rule: str) -> None:
    """floor(alpha B) of a uniform alpha; only counts that would leave the range are moved."""
    size, secret = 1000, np.full(20000, 3)
    counts = Ratio(6, rule).counts(secret, size, stream(0, "share"))[:, 1]
    assert counts.min() >= 400 + (rule == WITHIN)
    assert counts.max() <= 600
    assert stats.kstest((counts - 400) / 200, "uniform").statistic < 0.02


def test_names_say_of_what() -> None:
    assert Ratio(3).names(["no", "yes"]) == ("yes: none", "yes: up to 50 %", "yes: 50 to 100 %")
    assert Pure(2).names(["no", "yes"]) == ("no", "yes")


def test_trials_hold_the_share_and_stay_in_their_block() -> None:
    data, mix = records(0.0), Ratio(6, WITHIN)
    game = ProportionInference.deal(data, "s", batch_size=20, mix=mix, rng=stream(0, "deal"))
    trials = game.draw_trials(400, rng=stream(0, "play"))
    held = data.secrets["s"][trials.rows].sum(dim=1).tolist()
    assert [range_of(k, 20, 6) for k in held] == trials.secret.tolist()
    assert all(len(set(row.tolist())) == 20 for row in trials.rows)
    block = torch.from_numpy(game.block)
    assert (block[trials.rows] == trials.block[:, None]).all()
    again = game.redraw(trials, rng=stream(0, "again"))
    assert torch.equal(again.secret, trials.secret)


def test_frank_and_hall_against_their_definition() -> None:
    """On one feature, with scikit-learn's regressions for the yes-or-no questions."""
    rng = stream(0, "ordinal")
    truth = rng.integers(4, size=2000)
    x = (truth + rng.normal(size=2000))[:, None]
    above = np.stack(
        [LogisticRegression().fit(x, truth > j).predict_proba(x)[:, 1] for j in range(3)], axis=1
    )
    expected = np.empty((2000, 4))
    expected[:, 0] = 1 - above[:, 0]
    expected[:, 1] = above[:, 0] - above[:, 1]
    expected[:, 2] = above[:, 1] - above[:, 2]
    expected[:, 3] = above[:, 2]
    found = np.exp(log_differences(above, floor=1e-9))
    np.testing.assert_allclose(found, expected.clip(1e-9), atol=1e-7)
    crossed = np.exp(log_differences(np.array([[0.2, 0.7]]), floor=0.05))
    np.testing.assert_allclose(crossed, [[0.8 / 1.55, 0.05 / 1.55, 0.7 / 1.55]])


def found(attack, shift: float, seed: int) -> Estimate:
    stage = small_stage(
        records(shift, n=4000, seed=seed),
        attack,
        ask="proportion",
        batch_size=40,
        rounds=1,
        trials=600,
        seed=seed,
    )
    assert isinstance(stage.attacks[0], Ordinal)
    assert stage.game.values == 6
    return next(r for r in audit(stage) if (r.metric, r.round) == ("auroc", 1)).estimate


@pytest.mark.parametrize(
    "attack", [FOREST, pytest.param(Logistic(batches=600), marks=pytest.mark.slow)]
)
@pytest.mark.calibration
def test_a_planted_share_is_inferred(attack) -> None:
    assert found(attack, 4.0, 0).low > 0.7


@pytest.mark.slow
@pytest.mark.calibration
def test_where_no_share_shows_the_intervals_hold_one_half() -> None:
    """95 % intervals, eight seeds: five or fewer would have a chance of 0.6 %."""
    estimates = [found(Forest(trees=20, batches=200), 0.0, seed) for seed in range(8)]
    assert sum(one.low <= 0.5 <= one.high for one in estimates) >= 6


def test_the_prior_of_a_question_counts_all_values_above_it() -> None:
    """A question is asked of balanced batches; what is known beforehand enters once."""
    stage = small_stage(records(2.0), FOREST, ask="proportion", batch_size=20, rounds=1)
    bench = stage.game.shadow(
        stage.task, dict(stage.task.model.named_parameters()), stage.public, max_bytes=2**26
    )
    asked = bench.split_above(1)
    rows, above = asked.draw(600, rng=stream(0, "draw"))
    codes = stage.public.secrets["s"].numpy()[rows]
    assert np.array_equal(asked.mixture.secret_of(codes) > 1, above == 1)
    assert above.mean() == 0.5
    seen = asked.mixture.secret_of(codes)
    assert set(seen[above == 0]) == {0, 1}
    assert set(seen[above == 1]) == {2, 3, 4, 5}


def test_held_out_batches_of_a_proportion_can_be_scored_too() -> None:
    few = replace(FOREST, trees=5, batches=60)
    stage = small_stage(records(3.0), few, trials=300, ask="proportion", batch_size=20, stack=True)
    found = {r.round for r in audit(stage)}
    assert {"accumulated", "stacked", 1, 2} <= found


def test_fresh_batches_are_scored_on_other_held_out_batches_each_round() -> None:
    few = replace(FOREST, trees=5, batches=60)
    stage = small_stage(records(2.0), few, batches=FRESH, stack=True, trials=300)
    shadows_of_round = [
        stage.game.shadow(
            stage.task,
            dict(stage.task.model.named_parameters()),
            stage.public,
            max_bytes=2**26,
            held_out_seed=number,
        )
        for number in (1, 2)
    ]
    uniform = np.log([0.5, 0.5])
    rng = stream(0, "fit")
    one, other = (
        held_out_scores(few, few.fit(b, uniform, rng=rng), b, batches=60, rng=rng)
        for b in shadows_of_round
    )
    assert not np.array_equal(one.secret, other.secret)
    assert np.array_equal(one.by_secret().secret, other.by_secret().secret)
    assert "stacked" in {r.round for r in audit(stage)}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"batch_size": 3}, "cannot distinguish 6 ranges of a share"),
        ({"prior": "empirical", "batch_size": 20}, "no prior of shares"),
    ],
)
def test_refusals(settings: dict, says: str) -> None:
    with pytest.raises(InputError, match=says):
        small_stage(records(0.0), FOREST, ask="proportion", **settings)


@pytest.mark.parametrize(
    ("value", "property_", "rest"),
    [(None, "b", "not b"), ("c", "c", "not c"), ("a", "a", "not a")],
)
def test_of_three_values_one_is_asked_about(value: str | None, property_: str, rest: str) -> None:
    """The default is the most frequent one: b."""
    codes = torch.tensor([0] * 300 + [1] * 900 + [2] * 600)
    data = records(0.0, n=1800)
    names = Schema((), "y", ("0", "1"), {"s": ("a", "b", "c")})
    data = replace(data, secrets={"s": codes}, schema=names)
    made = one_against_rest(data, "s", value)
    assert made.schema is not None
    assert made.schema.secrets["s"] == (rest, property_)
    assert made.secrets["s"].tolist() == (codes == "abc".index(property_)).long().tolist()
    stage = small_stage(data, FOREST, ask="proportion", batch_size=12, ratio_of=value)
    assert stage.game.value_names[0] == f"{property_}: none"
    trials, pool = stage.trials, stage.private.secrets["s"]
    assert set(pool[trials.rows[trials.secret == 0]].unique().tolist()) == {0}
    with pytest.raises(InputError, match="this game is about 2"):
        ProportionInference.deal(data, "s", batch_size=12, mix=Ratio(6), rng=stream(0, "d"))


def test_of_two_values_the_second_is_asked_about() -> None:
    data = replace(records(0.0), schema=Schema((), "y", ("0", "1"), {"s": ("no", "yes")}))
    same, other = one_against_rest(data, "s"), one_against_rest(data, "s", "no")
    assert same.schema == data.schema
    assert torch.equal(same.secrets["s"], data.secrets["s"])
    assert other.schema is not None
    assert other.schema.secrets["s"] == ("yes", "no")
    assert torch.equal(other.secrets["s"], 1 - data.secrets["s"])
    with pytest.raises(InputError, match="--ratio-of is 'ye', not a value of 's'; did you mean"):
        one_against_rest(data, "s", "ye")
    with pytest.raises(InputError, match="all records have the same value of 's'"):
        one_against_rest(data.rows(torch.where(data.secrets["s"] == 1)[0]), "s")
