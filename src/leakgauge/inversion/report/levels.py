"""The verdict of an attempt: how near the rebuilt records are to the true ones."""

from dataclasses import dataclass

from leakgauge.inversion.metrics.table import COLUMNS, PSNR
from leakgauge.report.compare import Group
from leakgauge.report.grouping import Test
from leakgauge.report.section import Badge, Level
from leakgauge.results.measurements import Measurement

CLEAR_DB, CLOSE_DB = 20.0, 27.0
"""PSNR from which rebuilt images can be recognised, and from which they look like the truth. This
is our own reading of many pictures of 32 x 32 pixels; look at the pictures."""

PARTS_DB = 2.0
"""PSNR above that of the mean colour from which parts of the images are rebuilt."""

MOST_COLUMNS, MANY_COLUMNS = 0.9, 0.5
"""Shares of the columns that guessing gets wrong, from which most or many are rebuilt."""


@dataclass(frozen=True)
class Verdict:
    """How near an attempt came.

    Attributes:
        level: of the leakage.
        words: the verdict in a few words.
        figure: the measurement behind it; None where nothing could be scored.
        strength: from 0 (as a guess) to 1 (as the truth).
    """

    level: Level
    words: str
    figure: Measurement | None = None
    strength: float = 0.0


def verdict_of(test: Test) -> Verdict:
    """Return the verdict of an attempt by PSNR, or by the columns of a table."""
    return _of_figures(test.at(PSNR), test.at(COLUMNS))


def badge(group: Group) -> Badge | None:
    """Return the verdict on the means of a grid's cells; None without a score."""
    verdict = _of_figures(group.means.get(PSNR), group.means.get(COLUMNS))
    if verdict.figure is None:
        return None
    return Badge(verdict.level, verdict.words, verdict.strength)


def _of_figures(psnr: Measurement | None, columns: Measurement | None) -> Verdict:
    if psnr is not None:
        return _of_images(psnr)
    if columns is not None:
        return _of_rows(columns)
    return Verdict("unknown", "Not scored")


def worst(tests: list[Test]) -> tuple[Test, Verdict]:
    """Return the attempt that came nearest to the truth, with its verdict."""
    return by_nearness(tests)[0]


def by_nearness(tests: list[Test]) -> list[tuple[Test, Verdict]]:
    """Return the attempts with their verdicts, the one nearest to the truth first."""
    judged = [(test, verdict_of(test)) for test in tests]
    return sorted(judged, key=lambda one: -_nearness(one[1]))


def _nearness(verdict: Verdict) -> float:
    return float("-inf") if verdict.figure is None else verdict.figure.estimate.value


def _of_images(psnr: Measurement) -> Verdict:
    value, guess = psnr.estimate.value, psnr.chance
    strength = min(max((value - guess) / max(CLOSE_DB - guess, PARTS_DB), 0.0), 1.0)
    if value >= CLOSE_DB:
        return Verdict("strong", "Images rebuilt", psnr, strength)
    if value >= CLEAR_DB:
        return Verdict("clear", "Images recognisable", psnr, strength)
    if value >= guess + PARTS_DB:
        return Verdict("weak", "Parts of images rebuilt", psnr, strength)
    return Verdict("none", "Images not rebuilt", psnr, strength)


def _of_rows(columns: Measurement) -> Verdict:
    value, guess = columns.estimate.value, columns.chance
    beyond = (value - guess) / (1 - guess) if guess < 1 else 0.0
    strength = min(max(beyond, 0.0), 1.0)
    if beyond >= MOST_COLUMNS:
        return Verdict("strong", "Rows rebuilt", columns, strength)
    if beyond >= MANY_COLUMNS:
        return Verdict("clear", "Many columns rebuilt", columns, strength)
    if columns.estimate.low > guess:
        return Verdict("weak", "Some columns rebuilt", columns, strength)
    return Verdict("none", "Rows not rebuilt", columns, strength)
