"""Single records across the questions of one audit: a planted one, and none where nothing leaks."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from leakgauge.catalog import questions
from leakgauge.core.rng import stream
from leakgauge.inference.spec import InferenceSpec
from leakgauge.inversion.spec import InversionSpec
from leakgauge.membership.spec import MembershipSpec
from leakgauge.results.exposure import Exposure
from leakgauge.runs.audit import describe, prepare_all, run_audit
from leakgauge.runs.exposure import exposures_of
from leakgauge.runs.question import Silent
from support.sources import table_source

pytestmark = pytest.mark.slow


def people(seed: int, n: int = 600) -> pd.DataFrame:
    """Return a table whose label follows the height; the sex has to do with nothing."""
    rng = stream(seed, "people")
    height = rng.normal(170, 9, size=n)
    return pd.DataFrame(
        {
            "height": height,
            "age": rng.integers(18, 90, size=n),
            "town": rng.choice(["a", "b", "c"], size=n),
            "sex": rng.choice(["f", "m"], size=n),
            "income": np.where(height + rng.normal(0, 3, size=n) > 170, "high", "low"),
        }
    )


def asked(frame: pd.DataFrame, seed: int, *names: str) -> dict:
    roles = {"data": "people", "label": "income", "seed": seed}
    both = ("property", "attribute") if len(names) > 1 else ("property",)
    settings = {
        "inference": InferenceSpec(secret="sex", ask=both, rounds=1, trials=1000, **roles),
        "membership": MembershipSpec(
            adversary=("loss", "rmia"), hidden=(32,), lr=0.01, batch_size=16, rounds=60, **roles
        ),
        "reconstruction": InversionSpec(images=100, net="mlp", method=("exact-batch",), **roles),
    }
    known = questions()
    return prepare_all(
        {name: (known[name], settings[name]) for name in names}, source=table_source(frame)
    )


def exposure(folder: Path, prepared: dict) -> Exposure:
    run = run_audit(folder, describe("audit", prepared), prepared, progress=Silent(), workers=1)
    (found,) = exposures_of(run)
    return found


FOUR = ("inference", "membership", "reconstruction")


def planted(folder: Path, seed: int) -> tuple[int, Exposure]:
    """Return a record that is trained on and attacked, with a rare town and the wrong label."""
    frame = people(seed)
    prepared = asked(frame, seed, *FOUR)
    members = prepared["membership"].prepared.roles.splits[0].target_members.tolist()
    attacked = prepared["reconstruction"].prepared.scenario.rows.tolist()
    row = next(one for one in attacked if one in members and frame.income[one] == "low")
    frame.loc[row, ["height", "town"]] = [200.0, "z"]
    return row, exposure(folder / str(seed), asked(frame, seed, *FOUR))


def test_a_planted_record_stands_first_among_those_of_four_questions(tmp_path: Path) -> None:
    places = []
    for seed in range(10):
        row, found = planted(tmp_path, seed)
        asks = {one.ask for one in found.tests}
        assert asks == {"property", "attribute", "membership", "reconstruction"}
        places.append(found.rows.tolist().index(row) + 1)
    print(f"places {places} of {len(found.rows)} records")
    assert places.count(1) >= 9


def test_where_no_gradient_knows_the_secret_nobody_is_named_in_95_percent(tmp_path: Path) -> None:
    """The model does not see the sex, so that a record can only be right by chance."""
    alarms, runs = 0, 40
    for seed in range(runs):
        found = exposure(tmp_path / str(seed), asked(people(seed), seed, "inference"))
        alarms += bool(found.named.any())
    print(f"named somebody in {alarms} of {runs} audits")
    assert stats.binomtest(alarms, runs, 0.05, alternative="greater").pvalue > 0.01
