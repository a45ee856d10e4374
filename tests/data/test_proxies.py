"""Columns that alone determine an answer are named before any training."""

import numpy as np
import pandas as pd
import pytest

from leakgauge.core.rng import stream
from leakgauge.data import Roles, make_table
from leakgauge.data.proxies import column_auroc

N = 2000


def frame(**more: object) -> pd.DataFrame:
    rng = stream(0, "proxies")
    plain = {
        "income": rng.integers(2, size=N),
        "sex": rng.choice(["f", "m"], size=N),
        "age": rng.integers(18, 80, size=N),
        "score": rng.normal(size=N),
    }
    return pd.DataFrame({**plain, **more})


def warnings(frame: pd.DataFrame, **roles: object) -> list[str]:
    return list(make_table(frame, Roles("income", ("sex",), **roles)).warnings)


SEX = (frame()["sex"] == "f").to_numpy()
INCOME = frame()["income"].to_numpy()
RNG = stream(1, "more")

NAMED = [
    ("other_sex", 1 - SEX, "the feature 'other_sex' alone tells the secret 'sex' (AUROC 1.000)"),
    ("title", np.where(SEX, "Ms", "Mr"), "use --drop title"),
    ("height", 180 - 15 * SEX + RNG.normal(size=N), "alone tells the secret 'sex'"),
    ("salary", 10 * INCOME + RNG.normal(size=N), "alone tells the label 'income'"),
    ("row", RNG.permutation(N), "'row' is a different whole number in every row"),
]


@pytest.mark.parametrize(("name", "column", "says"), NAMED)
def test_a_proxy_is_named_with_what_to_do(name: str, column: object, says: str) -> None:
    (warning,) = warnings(frame(**{name: column}))
    assert says in warning
    assert f"--drop {name}" in warning
    assert warnings(frame(**{name: column}), drop=(name,)) == []


def test_a_label_that_is_the_secret_is_named() -> None:
    table = frame(income=np.where(SEX, "low", "high"))
    (warning,) = warnings(table)
    assert warning.startswith("the label 'income' alone tells the secret 'sex'")


def test_a_column_that_seems_to_name_users_is_named() -> None:
    users = RNG.integers(200, size=N)
    table = frame(patient=users, sex=np.where(users % 2, "f", "m"))
    found = warnings(table)
    assert any("use --group patient" in warning for warning in found)
    assert not any("--group" in warning for warning in warnings(table, group="patient"))


@pytest.mark.parametrize("numeric", [False, True])
def test_users_are_also_seen_by_the_label_alone(numeric: bool) -> None:
    users = np.repeat(np.arange(N // 4), 4)
    table = frame(patient=users, income=RNG.integers(2, size=N // 4)[users])
    roles = Roles("income", numeric=numeric)
    found = [one for one in make_table(table, roles).warnings if "--group patient" in one]
    assert len(found) == (0 if numeric else 1)


def test_rows_that_repeat_others_are_counted() -> None:
    one = frame()[: N // 4]
    copies = pd.concat([one] * 4)
    (warning,) = warnings(copies)
    assert warning.startswith(f"{3 * N // 4:,} of {N:,} rows repeat another row")
    assert "membership is understated" in warning
    few = pd.concat([frame(), one[:50]])
    assert warnings(few) == []
    owner = np.arange(N) % (N // 4)
    assert warnings(copies.assign(owner=owner), group="owner") == [], "a user's rows stay together"
    (again,) = warnings(copies.assign(owner=np.arange(N)), group="owner")
    assert again.startswith(f"{3 * N // 4:,} of {N:,} rows")


def test_what_is_missing_and_ranges_of_numbers_tell_a_secret() -> None:
    only_women = np.where(SEX, RNG.normal(size=N), np.nan)
    (warning,) = warnings(frame(psa=only_women))
    assert "the feature 'psa' alone tells the secret 'sex' (AUROC 1.000)" in warning
    stage = RNG.integers(3, size=N)
    table = frame(sex=np.array(["a", "b", "c"])[stage], marker=stage + 0.9 * RNG.random(N))
    (warning,) = warnings(table)
    assert "the feature 'marker' alone tells the secret 'sex'" in warning
    assert column_auroc(pd.Series(RNG.normal(size=N)), stage) < 0.6


def test_features_that_say_something_are_no_proxies() -> None:
    """Half of what they say is right, categories are many, and a number repeats by chance."""
    hint = np.where(RNG.random(N) < 0.9, SEX, RNG.random(N) < 0.5).astype(float)
    town = RNG.integers(150, size=N).astype(str)
    weight = RNG.integers(10_000, 12_000, size=N)
    assert warnings(frame(hint=hint, town=town, weight=weight)) == []


def test_a_category_does_not_tell_by_its_own_row() -> None:
    """A mean over a small category's rows would reveal the code of each row."""
    pairs = pd.Series(np.repeat(np.arange(100), 2)).astype("category")
    assert column_auroc(pairs, stream(2, "pairs").integers(2, size=200)) < 0.6
