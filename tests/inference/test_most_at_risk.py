"""The user most at risk: found where one is, and no user stands out by luck."""

import json
from pathlib import Path

import numpy as np
import pytest

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.inference.run.figures import FEWEST, most_at_risk
from leakgauge.results.scores import ScoredTrials
from support.command import run


def judged(right: np.ndarray) -> ScoredTrials:
    truth = np.zeros(len(right), dtype=np.int64)
    posterior = np.where(right[:, None], [0.9, 0.1], [0.1, 0.9])
    return ScoredTrials(truth, np.log(posterior), truth)


def test_users_at_equal_risk_are_not_called_worse_by_luck() -> None:
    rng, whose = stream(0, "users"), np.repeat(np.arange(40), 30)
    found = [most_at_risk(judged(rng.random(len(whose)) < 0.6), whose) for _ in range(300)]
    values = [one.success.value for one in found if one is not None]
    held = [one.success.low <= 0.6 <= one.success.high for one in found if one is not None]
    assert abs(np.mean(values) - 0.6) < 3 * np.std(values) / np.sqrt(len(values))
    assert np.mean(held) >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / len(held))


def test_a_planted_user_is_found() -> None:
    rng, whose = stream(1, "users"), np.tile(np.arange(20), 100)
    right = rng.random(len(whose)) < np.where(whose == 7, 0.97, 0.6)
    found = most_at_risk(judged(right), whose)
    assert found is not None
    assert (found.user, found.of) == (7, 20)
    assert found.success.low <= 0.97 <= found.success.high


def test_users_with_few_trials_are_not_compared() -> None:
    whose = np.repeat(np.arange(10), FEWEST - 1)
    assert most_at_risk(judged(np.ones(len(whose), dtype=bool)), whose) is None


def test_a_user_for_each_trial() -> None:
    with pytest.raises(InputError, match="3 users for 4 trials"):
        most_at_risk(judged(np.ones(4, dtype=bool)), np.arange(3))


def test_the_user_is_named(tmp_path: Path) -> None:
    rng = stream(2, "table")
    users = np.repeat([f"user{number:02d}" for number in range(40)], 40)
    habit = np.repeat(rng.normal(size=40), 40)
    rows = [
        f"{user},{own + rng.normal() / 4:.3f},{own - rng.normal() / 4:.3f},{rng.integers(2)}"
        for user, own in zip(users, habit, strict=True)
    ]
    (tmp_path / "t.csv").write_text("\n".join(["who,a,b,y", *rows]))
    ended = run(
        "audit", tmp_path / "t.csv", "--label", "y", "--group", "who", "--ask", "user",
        "--rounds", 1, "--trials", 800, "--batch-size", 4, "--adversary", "plda",
        "--json", "--out", tmp_path / "run",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    (headline,) = json.loads(ended.stdout)["headline"]
    worst = headline["most_at_risk"]
    assert worst["user"] in set(users)
    assert worst["success"]["chance"] == 0.2
    assert f"Most at risk is user <code>{worst['user']}</code>" in (
        tmp_path / "run/report.html"
    ).read_text(encoding="utf-8")
