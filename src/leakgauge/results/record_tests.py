"""Tests of single records: p values by row number, corrected for the number of tests, and a file.

A record's p value compares it with others of which the attack can know nothing, such as records
that were not trained on. If nothing leaks, the record and the others are exchangeable, and the p
value is uniform or larger (Vovk et al., conformal prediction).
"""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import scipy

from leakgauge.core.checks import require
from leakgauge.core.files import DamagedError, replacing
from leakgauge.core.knowledge import STATIC
from leakgauge.results.statistics import Bools, Floats, Ints

RECORD_TESTS_FILE = "record-tests.npz"

SHARED, ANY = "shared", "any"
"""Dependence of the p values of a test: those of a family come from one set of others, or it is
unknown."""

DATA = "data"
"""Numbering of rows: as in the user's data, counted from 0."""

_ABOUT = "about"


@dataclass(frozen=True, eq=False, kw_only=True)
class RecordTest:
    """One attack's p values of single records.

    Attributes:
        ask: the word of ``--ask``.
        adversary: name of the attack.
        rows: row of each attacked record in the data ``[n]``.
        p_value: p value of each ``[n]``.
        excess: distance of each score above those of the others, in standard deviations ``[n]``;
            it orders equal p values.
        others: number of records that each is compared with ``[n]``.
        defense: name of the defense.
        knowledge: what the attack knows of the defense.
        figure: how much the attack learns of each record ``[n]``; empty for none.
        guess: the same figure without the attack ``[n]``; empty for none.
        metric: title of the figure.
        without: what ``guess`` is, in a word or two.
        unit: code of what is tested ``[n]``, equal for records that share one test, such as those
            of one user; empty where each record has its own.
        family: code of the family of each ``[n]``, which is corrected by itself and then for the
            number of families; empty where all are of one.
        secret: name of the secret; empty for none.
        dependence: ``SHARED`` or ``ANY``.
        worst: a sentence on the record that one half of the trials shows as worst, by the other
            half; empty for none.
        versus: what the records are compared with, in a few words.
        assumes: what the p values suppose, in a sentence; empty for nothing.
        numbering: how rows are counted; ``DATA``, or in words.
    """

    ask: str
    adversary: str
    rows: Ints
    p_value: Floats
    excess: Floats
    others: Ints
    versus: str
    defense: str = "none"
    knowledge: str = STATIC
    figure: Floats
    guess: Floats
    metric: str = ""
    without: str = "guess"
    unit: Ints
    family: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    secret: str = ""
    dependence: str = ANY
    worst: str = ""
    assumes: str = ""
    numbering: str = DATA

    @property
    def adjusted(self) -> Floats:
        """The p values corrected for the number of records ``[n]``.

        Of p values that share their others, Benjamini and Hochberg's correction bounds the false
        discovery rate; of any others, Holm's bounds the probability of one false name.
        """
        found = np.empty(len(self.rows))
        for family in self.families:
            found[family] = np.minimum(self._adjusted(family) * len(self.families), 1.0)
        return found

    @property
    def families(self) -> list[Bools]:
        """Whether each record is in each family ``[n]``; one family without ``family``."""
        if not len(self.family):
            return [np.ones(len(self.rows), dtype=bool)]
        return [self.family == one for one in np.unique(self.family)]

    def _adjusted(self, family: Bools) -> Floats:
        p_value = self.p_value[family]
        if not len(self.unit):
            return corrected(p_value, self.dependence)
        _, first, of_unit = np.unique(self.unit[family], return_index=True, return_inverse=True)
        return corrected(p_value[first], self.dependence)[of_unit]

    @property
    def as_high(self) -> Ints:
        """The number of others with at least the record's score ``[n]``."""
        return np.rint(self.p_value * (self.others + 1) - 1).astype(np.int64)


def corrected(p_value: Floats, dependence: str) -> Floats:
    """Return p values corrected for their number ``[n]``, in the order given.

    Args:
        p_value: p values ``[n]``.
        dependence: ``SHARED`` for Benjamini and Hochberg's correction, which conformal p values of
            one set of others allow, or ``ANY`` for Holm's.

    References:
        Benjamini and Hochberg, J. R. Stat. Soc. B 1995; Holm, Scand. J. Stat. 1979; Bates et al.,
        Testing for outliers with conformal p-values, Annals of Statistics 2023, theorem 2.

    >>> corrected(np.array([0.01, 0.5, 0.02]), ANY).tolist()
    [0.03, 0.5, 0.04]
    """
    if dependence == SHARED:
        return np.asarray(scipy.stats.false_discovery_control(p_value), dtype=np.float64)
    order = np.argsort(p_value, kind="stable")
    left = len(p_value) - np.arange(len(p_value))
    found = np.empty(len(p_value))
    found[order] = np.minimum(np.maximum.accumulate(p_value[order] * left), 1.0)
    return found


def against_others(scores: Floats, others: Floats) -> tuple[Floats, Floats]:
    """Return the p value and the excess of scores among those of others, ``[n]`` each.

    Args:
        scores: scores of the records ``[n]``, higher where the attack finds more.
        others: scores of the others ``[m]``, by the same attack.

    Raises:
        InputError: there are no others.

    >>> p_value, excess = against_others(np.array([5.0, 0.0]), np.array([0.0, 1.0, 2.0]))
    >>> p_value.tolist(), excess.round(2).tolist()
    ([0.25, 1.0], [3.67, -2.45])
    """
    require(len(others) > 0, "no other record to compare with")
    ordered = np.sort(others)
    as_high = len(others) - np.searchsorted(ordered, scores, side="left")
    excess = (scores - ordered[-1]) / (float(others.std()) or 1.0)
    return np.asarray((1 + as_high) / (len(others) + 1), np.float64), excess


def keep_record_tests(folder: Path, tests: Sequence[RecordTest]) -> None:
    """Write the tests of an answer into its folder; nothing for no test."""
    if not tests:
        return
    arrays = {
        f"{at}/{name}": value
        for at, one in enumerate(tests)
        for name, value in vars(one).items()
        if isinstance(value, np.ndarray)
    }
    words = [{k: v for k, v in vars(one).items() if isinstance(v, str)} for one in tests]
    arrays[_ABOUT] = np.array(json.dumps(words))
    with replacing(folder / RECORD_TESTS_FILE) as part, part.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


def read_record_tests(folder: Path) -> list[RecordTest]:
    """Return the tests of an answer; empty if its question tests no single records.

    Raises:
        InputError: the file is damaged.
    """
    path = folder / RECORD_TESTS_FILE
    if not path.is_file():
        return []
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as kept:
            words = json.loads(str(kept[_ABOUT]))
            return [RecordTest(**_arrays(kept, at), **one) for at, one in enumerate(words)]
    except (OSError, ValueError, KeyError, TypeError, BadZipFile) as error:
        raise DamagedError(f"{str(path)!r} is damaged ({type(error).__name__})") from error


def _arrays(kept: Any, at: int) -> dict[str, Any]:
    names = (one.name for one in fields(RecordTest))
    return {name: kept[f"{at}/{name}"] for name in names if f"{at}/{name}" in kept}
