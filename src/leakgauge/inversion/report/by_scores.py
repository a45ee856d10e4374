"""The verdict on an attempt by its scores, and on single records where most are not rebuilt."""

from dataclasses import dataclass, replace

from leakgauge.inversion.metrics.table import (
    CLEAR_DB,
    CLOSE_DB,
    COLUMNS,
    PARTS_DB,
    PSNR,
    RECOGNISABLE,
    RECORDS,
    TOKEN_ACCURACY,
)
from leakgauge.report.section import Level
from leakgauge.report.wording import count
from leakgauge.results.measurements import Measurement

MOST_COLUMNS, MANY_COLUMNS = 0.9, 0.5
"""Smallest shares, of the columns that guessing gets wrong, that count as most and many; also
of tokens."""


MOST_IMAGES = 0.5
"""Smallest share of images that can be recognised for a verdict on all images."""

SOME_IMAGES = "Some images recognisable"
"""The verdict where single images were rebuilt, and most were not."""


@dataclass(frozen=True)
class InversionVerdict:
    """Nearness of an attempt's records to the truth.

    Attributes:
        level: level of leakage.
        words: verdict in a few words.
        figure: measurement behind the verdict; None if no record could be scored.
        strength: 0 if as good as a guess, 1 if equal to the truth.
    """

    level: Level
    words: str
    figure: Measurement | None = None
    strength: float = 0.0


SCORES = (PSNR, COLUMNS, TOKEN_ACCURACY, RECOGNISABLE, RECORDS)
"""The metrics that decide a verdict: of images, of tables, and of text; then shares of images and
of records of a table that were rebuilt where the mean over all is low."""


def of_scores(
    psnr: Measurement | None,
    columns: Measurement | None,
    tokens: Measurement | None,
    recognisable: Measurement | None,
    exact: Measurement | None,
) -> InversionVerdict:
    """Return the verdict on the measurements of ``SCORES``; None for those that are missing."""
    if psnr is not None:
        return _or_single(_of_images(psnr), recognisable, SOME_IMAGES)
    if columns is not None:
        return _or_single(_of_shares(columns, "Rows", "columns"), exact, "Some records exact")
    if tokens is not None:
        return _of_shares(tokens, "Texts", "tokens")
    return InversionVerdict("unknown", "Not scored")


def _or_single(
    verdict: InversionVerdict, share: Measurement | None, words: str
) -> InversionVerdict:
    """Return the verdict, or a clear one where single records were rebuilt and most were not.

    A few exact records raise a mean PSNR as much as they can lie hidden under one.

    Args:
        verdict: verdict on the mean over all records.
        share: share of records that were rebuilt each.
        words: the clear verdict in a few words.
    """
    if not is_beyond_chance(share):
        return verdict
    assert share is not None
    hidden = verdict.level in ("none", "weak")
    if not hidden and (verdict.figure is None or verdict.figure.metric != PSNR):
        return verdict
    if not hidden and share.estimate.value >= MOST_IMAGES:
        return verdict
    return replace(
        verdict, level="clear", words=words, strength=max(verdict.strength, share.estimate.value)
    )


def is_beyond_chance(share: Measurement | None) -> bool:
    """Return whether records were rebuilt each, and more of them than by a guess."""
    return share is not None and share.estimate.value > max(share.chance, 0.0)


def _of_images(psnr: Measurement) -> InversionVerdict:
    value, guess = psnr.estimate.value, psnr.chance
    strength = min(max((value - guess) / max(CLOSE_DB - guess, PARTS_DB), 0.0), 1.0)
    if value < guess + PARTS_DB:
        return InversionVerdict("none", "Images not rebuilt", psnr, strength)
    if value >= CLOSE_DB:
        return InversionVerdict("strong", "Images rebuilt", psnr, strength)
    if value >= CLEAR_DB:
        return InversionVerdict("clear", "Images recognisable", psnr, strength)
    return InversionVerdict("weak", "Parts of images rebuilt", psnr, strength)


def _of_shares(share: Measurement, records: str, parts: str) -> InversionVerdict:
    value, guess = share.estimate.value, share.chance
    beyond = (value - guess) / (1 - guess) if guess < 1 else 0.0
    strength = min(max(beyond, 0.0), 1.0)
    if beyond >= MOST_COLUMNS:
        return InversionVerdict("strong", f"{records} rebuilt", share, strength)
    if beyond >= MANY_COLUMNS:
        return InversionVerdict("clear", f"Many {parts} rebuilt", share, strength)
    if share.estimate.low > guess:
        return InversionVerdict("weak", f"Some {parts} rebuilt", share, strength)
    return InversionVerdict("none", f"{records} not rebuilt", share, strength)


def single_images(share: Measurement | None) -> str:
    """Return how many images can be recognised, as a sentence."""
    assert share is not None
    found = round(share.estimate.value * share.estimate.n)
    return (
        f"{found} of {count(share.estimate.n)} images were rebuilt well enough to be recognised "
        f"({CLEAR_DB:g} dB or more)."
    )


def exact_records(share: Measurement | None) -> str:
    """Return how many records of a table are exact, as a sentence; empty where a guess has more."""
    if share is None or not is_beyond_chance(share):
        return ""
    found = round(share.estimate.value * share.estimate.n)
    return f"{found} of {count(share.estimate.n)} records are exact in every column."
