"""A record is exposed if its batches are named more surely than chance explains."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from leakgauge.core.rng import stream
from leakgauge.results.record_tests import SHARED, RecordTest
from leakgauge.results.record_trials import RecordsOfTrials, records_of_trials, worst_record


@dataclass(frozen=True)
class Game:
    """Batches of one secret; ``effect`` of each record moves the odds of secret 1."""

    secret: np.ndarray
    effect: np.ndarray
    of_kind: int = 60
    batch: int = 4

    def tested(self, rng: np.random.Generator) -> tuple[RecordsOfTrials, np.ndarray]:
        of_secret = [np.flatnonzero(self.secret == one) for one in (0, 1)]
        truth = np.repeat([0, 1], self.of_kind * 4)
        block = np.tile(np.repeat(np.arange(4), self.of_kind), 2)
        blocks = [np.array_split(rng.permutation(one), 4) for one in of_secret]
        rows = np.stack(
            [
                rng.choice(blocks[one][part], self.batch, replace=False)
                for one, part in zip(truth, block, strict=True)
            ]
        )
        odds = self.effect[rows].sum(axis=1) + rng.normal(size=len(rows)) + 2.0 * block
        both = np.stack([-odds, odds], axis=1)
        right = (both[np.arange(len(rows)), truth] > 0).astype(float)
        return records_of_trials(both, truth, right, rows, block), rows


def test_of(found: RecordsOfTrials) -> RecordTest:
    empty = np.empty(0)
    return RecordTest(
        ask="property",
        adversary="panel",
        rows=found.records,
        p_value=found.p_value,
        excess=found.excess,
        others=found.others,
        versus="others",
        figure=empty,
        guess=empty,
        unit=empty.astype(int),
        family=found.secret,
        dependence=SHARED,
    )


test_of.__test__ = False  # type: ignore[attr-defined]


def nothing(rng: np.random.Generator, kind: str, n: int = 240) -> Game:
    """Return a game whose secrets are drawn without a look at the records."""
    effect = np.zeros(n)
    if kind != "noise":
        effect = rng.standard_t(2, size=n)
    if kind == "one side":  # what dominates a batch always moves it towards secret 1
        effect = np.abs(effect) * (np.abs(effect) > 2)
    return Game((rng.random(n) < (0.5 if kind != "few" else 0.2)).astype(int), effect)


@pytest.mark.parametrize(
    "kind",
    [
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("noise", "both sides")),
        "one side",
        "few",
    ],
)
def test_without_a_leak_any_record_is_named_in_at_most_1_of_20_runs(kind: str) -> None:
    """Also where some records dominate their batches and so move them the same way each time."""
    alarms, runs = 0, 150
    for seed in range(runs):
        rng = stream(seed, "nothing", kind)
        found, _ = nothing(rng, kind).tested(rng)
        alarms += bool((test_of(found).adjusted <= 0.05).any())
    assert stats.binomtest(alarms, runs, 0.05, alternative="greater").pvalue > 1e-3, alarms


def test_records_that_give_their_secret_away_are_named() -> None:
    """With two secrets it takes many: a single one may be right by a coin."""
    rng = stream(0, "planted")
    secret, effect = np.arange(2000) % 2, np.zeros(2000)
    exposed = rng.permutation(2000)[:160]
    effect[exposed] = np.where(secret[exposed] == 1, 4.0, -4.0)
    found, _ = Game(secret, effect, of_kind=1500).tested(rng)
    named = found.records[test_of(found).adjusted <= 0.05]
    assert len(np.intersect1d(named, exposed)) >= 120
    assert len(np.setdiff1d(named, exposed)) <= 0.1 * len(named)
    first = found.records[np.argsort(-found.excess)][:40]
    assert np.isin(first, exposed).all()


def test_p_values_are_the_larger_rank_of_two() -> None:
    """A literal version, record by record."""
    rng = stream(3, "literal")
    game = nothing(rng, "both sides", n=40)
    found, rows = game.tested(rng)
    rng = stream(3, "literal")  # the same batches again, with their odds
    game = nothing(rng, "both sides", n=40)
    again, same = game.tested(rng)
    assert np.array_equal(rows, same)
    assert np.array_equal(found.p_value, again.p_value)
    odds, truth, holds = literal_inputs()
    one = records_of_trials(odds, truth, np.ones(6), holds, np.zeros(6, dtype=int))
    effects = literal_effects(odds, truth, holds)
    for at, record in enumerate(one.records.tolist()):
        value = one.secret[at]
        own = effects[value][record]
        others = [effects[value][j] for j in one.records.tolist() if secret_of(j) != value]
        mirrored = [
            -effects[value][j]
            for j in one.records.tolist()
            if secret_of(j) == value and j != record
        ]
        ranks = [(1 + sum(v >= own for v in each)) / (1 + len(each)) for each in (others, mirrored)]
        least = [min(1.0, p) for p in ranks]
        assert one.p_value[at] == pytest.approx(max(least), abs=0.34 if own <= 0 else 1e-12)


def secret_of(record: int) -> int:
    return int(record >= 3)


def literal_inputs() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    odds = np.array([3.0, 1.0, -1.0, -2.5, 0.5, 2.0])
    truth = np.array([0, 0, 0, 1, 1, 1])
    holds = np.array([[0, 1], [1, 2], [2, 0], [3, 4], [4, 5], [5, 3]])
    return np.stack([odds, -odds], axis=1), truth, holds


def literal_effects(odds: np.ndarray, truth: np.ndarray, rows: np.ndarray) -> list[dict]:
    found = []
    for value in (0, 1):
        each = {}
        for record in range(6):
            kind = truth == secret_of(record)
            held = (rows == record).any(axis=1)
            score, n, m = odds[kind, value], kind.sum(), held.sum()
            centred = score - score.mean()
            spread = np.sqrt(m * (n - m) / (n * (n - 1)) * (centred**2).sum())
            each[record] = (odds[held, value] - score.mean()).sum() / spread
        found.append(each)
    return found


def test_the_worst_record_of_chance_is_chance_in_the_other_half() -> None:
    """The half that chooses shows a record that is named often; the other half does not."""
    gaps = []
    for seed in range(50):
        rng = stream(seed, "worst")
        kind = np.arange(240) % 8
        rows = np.stack([rng.choice(16, 4, replace=False) + 16 * one for one in kind])
        score = rng.normal(size=240)
        worst = worst_record(score, (score > 0).astype(float), rows, kind)
        gaps += [worst.figure - worst.guess] if worst is not None else []
    assert abs(np.mean(gaps)) < 3 * np.std(gaps) / np.sqrt(len(gaps))


def test_a_record_of_all_trials_has_none_to_compare_with() -> None:
    rows, zero = np.array([[0, 1], [0, 2], [0, 3]]), np.zeros(3, dtype=int)
    odds = np.stack([np.arange(3.0), -np.arange(3.0)], axis=1)
    one = records_of_trials(odds, zero, np.ones(3), rows, zero)
    assert one.records.tolist() == [1, 2, 3]
