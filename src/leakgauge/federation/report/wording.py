"""Verdicts and sentences for a reader who is no specialist."""

from dataclasses import dataclass

from leakgauge.federation.metrics import LOSS, METRICS, PROPERTY_RIGHT, PSNR
from leakgauge.federation.report.rows import Table
from leakgauge.federation.words import MEMBERSHIP
from leakgauge.inversion.report.levels import CLEAR_DB, CLOSE_DB
from leakgauge.report.levels import HEADLINES, level_of, strength_of
from leakgauge.report.section import Level
from leakgauge.report.wording import interval, number, percent, short
from leakgauge.results.measurements import Measurement


@dataclass(frozen=True)
class Verdict:
    """The verdict on one question.

    Attributes:
        level: of the leakage.
        words: in a few words.
        text: in one or two sentences.
        strength: from 0 to 1.
    """

    level: Level
    words: str
    text: str
    strength: float = 0.0


def verdict(table: Table) -> Verdict:
    """Return the verdict on a question: of the mean over all updates, with the highest named."""
    if table.metric == LOSS:
        return Verdict(
            "unknown",
            "Not scored",
            f"Records were rebuilt from {len(table.cells)} updates. The clients' records are not "
            "known here, so nothing says how near these are; look at them.",
        )
    if table.metric == PSNR:
        return _of_pictures(table)
    one = table.mean
    level = level_of(one.estimate, one.chance)
    strength = strength_of(one.estimate, one.chance)
    return Verdict(level, HEADLINES[level], f"{_of_auroc(table)} {_highest(table)}", strength)


def level_of_rebuilt(one: Measurement) -> Level:
    """Return the level of a PSNR: above that of a guess it leaks, and its value says how much.

    The guess is the better one of public records and of their mean, each matched with the true
    records as the rebuilt ones are.
    """
    estimate = one.estimate
    if estimate.low <= one.chance:
        return "none" if estimate.value <= one.chance else "inconclusive"
    if estimate.value >= CLOSE_DB:
        return "strong"
    return "clear" if estimate.value >= CLEAR_DB else "weak"


_PICTURES = {
    "strong": "Records rebuilt",
    "clear": "Records recognisable",
    "weak": "Parts of records rebuilt",
    "inconclusive": "Inconclusive",
    "none": "Records not rebuilt",
}


def _of_pictures(table: Table) -> Verdict:
    one = table.mean
    level = level_of_rebuilt(one)
    text = (
        f"Rebuilt records have a PSNR of {short(one.estimate.value)} dB, the mean over "
        f"{len(table.cells)} updates ({percent(one.estimate.confidence)} interval "
        f"{short(one.estimate.low)} to {short(one.estimate.high)}); a guess that sees no update "
        f"has {short(one.chance)} dB. {_highest(table)}"
    )
    width = max(CLOSE_DB - one.chance, 1.0)
    strength = min(max((one.estimate.value - one.chance) / width, 0.0), 1.0)
    return Verdict(level, _PICTURES[level], text, strength)


def _of_auroc(table: Table) -> str:
    one = table.mean
    what = (
        "An attacker that knows some of a client's records tells others of them from records that "
        "no client has"
        if table.ask == MEMBERSHIP
        else f"An attacker that simulates clients tells `{one.secret}` of simulated ones that it "
        "did not learn from"
    )
    text = (
        f"{what} with an AUROC of {number(one.estimate.value)}, the mean over {len(table.cells)} "
        f"updates ({percent(one.estimate.confidence)} interval {interval(one.estimate)}; guessing "
        f"gives {number(one.chance)})."
    )
    right = table.extra.get(PROPERTY_RIGHT)
    if right is None:
        return text
    return (
        f"{text} Over all rounds it names the value of {percent(right.estimate.value)} of "
        f"{right.estimate.n} real clients right."
    )


def _highest(table: Table) -> str:
    (number_, client), one = table.highest
    written = short if table.metric == PSNR else number
    return (
        f"The highest figure is that of round {number_}, client {client}: "
        f"{written(one.estimate.value)}{' dB' if METRICS[table.metric].unit == 'dB' else ''}."
    )
