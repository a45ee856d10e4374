"""Datasets that are at hand by name."""

import os
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

from leakgauge.checks import InputError
from leakgauge.data.read import read_table

DATA_VARIABLE = "LEAKGAUGE_DATA"

_COVARIATES = (
    "site",
    "year",
    "coins",
    "idp",
    "mdeoff",
    "pioff",
    "tookphys",
    "black",
    "xage",
    "female",
    "educdec",
    "income",
    "num",
    "xghindx",
    "hlthg",
    "hlthf",
    "hlthp",
    "mhi",
    "disea",
    "physlm",
)


def randhie() -> pd.DataFrame:
    """The RAND Health Insurance Experiment: 20,190 person-years of 5,912 persons.

    Families were assigned at random to insurance plans that paid different shares of their
    medical bills, and were followed for three to five years. Needs no download: the table comes
    with statsmodels.

    Columns: ``zper`` names the person (the group; a person's rows are not independent);
    ``any_visit`` (no, yes: the label) tells whether the person saw a doctor face to face that
    year; ``female`` (no, yes: the secret). The others are what was known of the person before the
    year's care: site, study year, plan (``coins`` coinsurance in %, ``idp`` individual deductible,
    ``mdeoff`` maximum expenditure, ``pioff`` participation incentive), ``tookphys`` (baseline
    physical), ``black``, ``xage``, ``educdec`` (education of the decision maker), ``income``,
    ``num`` (family size), and health at the baseline: ``xghindx`` (general index), ``hlthg``,
    ``hlthf``, ``hlthp`` (good, fair, poor), ``mhi`` (mental), ``disea`` (chronic diseases) and
    ``physlm`` (physical limitations).

    Left out:
        - outcomes of the same year's care, which follow from the visits or come with them:
          ``mdvis`` (it is the label), ``notmdvis``, ``mentvis``, ``totadm``, ``inpmis``, all
          expenses (``outpdol``, ``drugdol``, ``suppdol``, ``mentdol``, ``inpdol``, ``meddol``,
          ``lnmeddol``), ``binexp``; and ``time``, the share of the year that was observed;
        - ``fchild`` (female child), which names the secret; ``child`` repeats ``xage``;
        - repetitions of what is kept: ``plan`` (of the plan's terms), ``ghindx`` (``xghindx`` is
          the same with its gaps filled), ``logc``, ``lpi``, ``fmde``, ``linc``, ``lfam``, ``lnum``.

    Source: RAND Corporation; from the data of Cameron and Trivedi, Microeconometrics (2005), as
    carried by statsmodels (``datasets/randhie/src/randhie.csv``). Terms: public domain, as stated
    there.

    Raises:
        InputError: the installed statsmodels does not carry the file.

    >>> randhie()["any_visit"].value_counts().to_dict()
    {'yes': 13882, 'no': 6308}
    """
    raw = read_table(_randhie_file())
    kept = raw[["zper", *_COVARIATES]].copy()
    kept["female"] = raw["female"].map({0: "no", 1: "yes"})
    # Sites are numbered, not ordered.
    kept["site"] = "site " + raw["site"].astype(str)
    kept["any_visit"] = (raw["mdvis"] > 0).map({False: "no", True: "yes"})
    return kept


def data_folder() -> Path | None:
    """The folder that the environment variable ``LEAKGAUGE_DATA`` names, or None."""
    folder = os.environ.get(DATA_VARIABLE)
    return Path(folder) if folder else None


def _randhie_file() -> Path:
    # Found without importing statsmodels, which takes seconds; its own loader reads a file with
    # ten of the columns.
    spec = find_spec("statsmodels")
    folders = (spec.submodule_search_locations if spec else None) or []
    for folder in folders:
        file = Path(folder, "datasets", "randhie", "src", "randhie.csv")
        if file.is_file():
            return file
    raise InputError("no randhie.csv in statsmodels; install statsmodels 0.14 or later")
