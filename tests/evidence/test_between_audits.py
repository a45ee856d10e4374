"""Real audits before and after a change: how often one that adds a leak fails, and another one."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import leakgauge as lg
from leakgauge.core.rng import stream

SEEDS = 20
RULE = "property.advantage.difference.low > 0.02"
MOST = int(stats.binom.ppf(0.999, SEEDS, 0.05))
"""Failures of a change without a leak: 2.5 % show a difference, 2.5 % lie below guessing."""


def people(seed: int, n: int = 800) -> pd.DataFrame:
    """Return a table whose secret no feature tells."""
    rng = stream(seed, "people")
    height, age = rng.normal(170, 9, n), rng.integers(18, 90, n)
    rich = rng.normal(size=n) + (height - 170) / 10 > 0
    sick = rng.random(n) < 0.5
    return pd.DataFrame({"height": height, "age": age, "income": rich, "sick": sick})


def audited(table: pd.DataFrame, seed: int) -> lg.Result:
    data = lg.load(table, label="income", secret="sick")
    return lg.audit(
        data, "property", seed=seed, adversaries="energies", rounds=1, trials=200, batch_size=4,
        shadow=200, hidden=(8,),
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.calibration
def test_a_change_that_adds_a_leak_fails_and_another_one_passes_at_the_stated_rate() -> None:
    """A column of noise is the harmless change, and one that copies the secret the leak.

    The audits of a pair have different seeds, so they share records and no trial.
    """
    codes: dict[str, list[int]] = {"noise": [], "leak": []}
    for seed in range(SEEDS):
        table = people(seed)
        base = audited(table, seed)
        noise = stream(seed, "noise").normal(size=len(table))
        for name, column in (("noise", noise), ("leak", np.where(table["sick"], 5.0, -5.0))):
            new = audited(table.assign(new=column), SEEDS + seed)
            codes[name].append(new.gate(RULE, against=base).exit_code)
    failed = {name: sum(code == 3 for code in each) for name, each in codes.items()}
    print(f"of {SEEDS} seeds fail: {failed}")
    assert {code for each in codes.values() for code in each} <= {0, 3}
    assert failed["noise"] <= MOST
    assert failed["leak"] == SEEDS
