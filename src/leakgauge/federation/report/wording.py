"""Figures by question, and verdicts and sentences for non-specialist readers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from leakgauge.federation.metrics import (
    AUROC_OVER,
    LOSS,
    MATCHED,
    METRICS,
    PROPERTY_AUROC,
    PROPERTY_RIGHT,
    PSNR,
    STARTS,
    TPR_01_OVER,
    TPR_1_OVER,
)
from leakgauge.federation.spec import ASKS, MEMBERSHIP, PROPERTY, RECONSTRUCTION
from leakgauge.inversion.metrics.table import CLEAR_DB, CLOSE_DB
from leakgauge.inversion.report.understood import is_understood, matched_sentence
from leakgauge.inversion.words import ASSUMED, NOT_UNDERSTOOD
from leakgauge.membership.metrics import NEEDS
from leakgauge.report.levels import HEADLINES, level_of, strength_of
from leakgauge.report.section import Level
from leakgauge.report.wording import interval, number, percent, short
from leakgauge.results.measurements import Measurement
from leakgauge.results.scores import AUROC, TPR_AT_1_FPR

FIGURES: Mapping[str, tuple[str, ...]] = {
    RECONSTRUCTION: (PSNR, LOSS),
    MEMBERSHIP: (AUROC,),
    PROPERTY: (PROPERTY_AUROC,),
}
"""Candidates for the figure of each question in the report; the first measured one is shown."""


@dataclass(frozen=True)
class UpdateTable:
    """One question's figure by round and client.

    Attributes:
        ask: the question.
        metric: metric of the figures.
        mean: mean over all updates.
        cells: figures by round and client.
        extra: other figures over all updates, by metric.
        matched: match of the update that a search reproduces worst; None without a search.
        over_rounds: AUROC of membership over all rounds, by client.
    """

    ask: str
    metric: str
    mean: Measurement
    cells: Mapping[tuple[int, str], Measurement]
    extra: Mapping[str, Measurement]
    matched: Measurement | None = None
    over_rounds: Mapping[str, Measurement] = field(default_factory=dict)

    @property
    def lead(self) -> Measurement:
        """The figure of the verdict: over all rounds if validation records favour that."""
        whole = self.extra.get(AUROC_OVER)
        if whole is None or (whole.held_out or 0.0) <= (self.mean.held_out or 0.0):
            return self.mean
        return whole

    @property
    def rounds(self) -> list[int]:
        """The rounds in ascending order."""
        return sorted({number for number, _ in self.cells})

    @property
    def clients(self) -> list[str]:
        """The clients, in the order of the measurements."""
        return list(dict.fromkeys(client for _, client in self.cells))

    @property
    def highest(self) -> tuple[tuple[int, str], Measurement]:
        """The update with the highest figure."""
        return max(self.cells.items(), key=lambda one: one[1].estimate.value)


def tables(measurements: Sequence[Measurement]) -> list[UpdateTable]:
    """Return the table of each measured question, in the order of ``ASKS``."""
    found = []
    for ask in ASKS:
        mine = [one for one in measurements if one.game == ask]
        over_all = {one.metric: one for one in mine if not isinstance(one.round, int)}
        metric = next((name for name in FIGURES[ask] if name in over_all), None)
        if metric is None:
            continue
        cells = {
            (one.round, one.metric.partition(": ")[2]): one
            for one in mine
            if isinstance(one.round, int) and one.metric.partition(": ")[0] == metric
        }
        start = f"{AUROC_OVER}: "
        clients = {name.removeprefix(start): m for name, m in over_all.items() if start in name}
        extra = {name: m for name, m in over_all.items() if name != metric and ": " not in name}
        each = [one for one in mine if one.metric.partition(": ")[0] == MATCHED]
        # The mean of a single update is equal, and says nothing of its direction.
        order = sorted(each, key=lambda one: not isinstance(one.round, int))
        worst = min(order, key=lambda one: one.estimate.value, default=None)
        found.append(UpdateTable(ask, metric, over_all[metric], cells, extra, worst, clients))
    return found


@dataclass(frozen=True)
class FederationVerdict:
    """The verdict on one question.

    Attributes:
        level: level of the leakage.
        words: the verdict in a few words.
        text: the verdict in one or two sentences.
        strength: strength of the leakage, from 0 to 1.
    """

    level: Level
    words: str
    text: str
    strength: float = 0.0


def verdict(table: UpdateTable) -> FederationVerdict:
    """Return the verdict on the mean over all updates, with the highest figure."""
    if table.metric == LOSS:
        understood = is_understood(table.matched, table.mean.details.get(ASSUMED, ""))
        return FederationVerdict(
            "unknown",
            "Not scored" if understood else NOT_UNDERSTOOD,
            f"Records were rebuilt from {len(table.cells)} updates. The clients' records are "
            "unknown here, so their similarity cannot be measured; inspect them. "
            f"{_training(table)}".rstrip(),
        )
    if table.metric == PSNR:
        return _of_pictures(table)
    one = table.lead
    level = level_of(one.estimate, one.chance)
    strength = strength_of(one.estimate, one.chance)
    parts = _of_auroc(table), _highest(table), _over_rounds(table), _training(table)
    return FederationVerdict(level, HEADLINES[level], " ".join(filter(None, parts)), strength)


def level_of_rebuilt(one: Measurement) -> Level:
    """Return the level of a PSNR: leakage begins above a guess, and the PSNR sets its level.

    The guess is the better one of public records and of their mean, each matched with the true
    records like the rebuilt ones. An interval that reaches recognisable records is inconclusive.
    """
    estimate = one.estimate
    if estimate.low <= one.chance:
        seen = estimate.high < max(CLEAR_DB, one.chance)
        return "none" if estimate.value <= one.chance and seen else "inconclusive"
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


def _of_pictures(table: UpdateTable) -> FederationVerdict:
    one = table.mean
    level = level_of_rebuilt(one)
    words = _PICTURES[level]
    if level in ("none", "inconclusive") and not is_understood(
        table.matched, table.mean.details.get(ASSUMED, "")
    ):
        level, words = "inconclusive", NOT_UNDERSTOOD
    text = (
        f"Rebuilt records have a PSNR of {short(one.estimate.value)} dB, the mean over "
        f"{len(table.cells)} updates ({percent(one.estimate.confidence)} interval "
        f"{short(one.estimate.low)} to {short(one.estimate.high)}{_over(one)}); a guess without "
        f"the update has {short(one.chance)} dB. {_highest(table)} {_training(table)}"
    ).rstrip()
    width = max(CLOSE_DB - one.chance, 1.0)
    strength = min(max((one.estimate.value - one.chance) / width, 0.0), 1.0)
    return FederationVerdict(level, words, text, strength)


def _over(one: Measurement) -> str:
    """Return what the interval of a PSNR covers, in words; empty for a method without starts."""
    starts = one.details.get(STARTS)
    if starts is None:
        return ""
    if starts == "1":
        return ", over records alone: the search had one start (--restarts)"
    return f", over records and the {starts} starts of each search"


def _training(table: UpdateTable) -> str:
    """Return how well the updates were reproduced, and what was assumed of the training."""
    assumed = table.mean.details.get(ASSUMED, "")
    said = [f"Assumed: {assumed}."] if assumed else []
    if table.matched is not None:
        of = f" This is the worst of {len(table.cells)} updates." if len(table.cells) > 1 else ""
        said.insert(0, matched_sentence(table.matched) + of)
    return " ".join(said)


def _of_auroc(table: UpdateTable) -> str:
    one = table.mean
    what = (
        "An attacker that knows some of a client's records distinguishes its other records from "
        "records that no client has"
        if table.ask == MEMBERSHIP
        else f"An attacker that simulates clients infers `{one.secret}` of simulated clients that "
        "it did not learn from"
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
        f"{text} Over all rounds it infers the value of {percent(right.estimate.value)} of "
        f"{right.estimate.n} real clients correctly."
    )


def _over_rounds(table: UpdateTable) -> str:
    """Return the figures over all rounds, and which figure the verdict takes."""
    one = table.extra.get(AUROC_OVER)
    if one is None:
        return ""
    takes = "all rounds together" if table.lead is one else "single updates"
    return (
        f"Over all rounds of a client the AUROC is {number(one.estimate.value)}, the mean over "
        f"{len(table.over_rounds)} clients ({interval(one.estimate)}); validation records favour "
        f"{takes}, which the verdict takes. {_rare(table)}"
    )


def _rare(table: UpdateTable) -> str:
    """Return the shares of members that are recognised with rare false alarms."""
    said = [
        f"{percent(one.estimate.value)} of a client's records with false alarms for 1 in {of} of "
        f"the others (guessing gives {percent(one.chance)})"
        for metric, of in ((TPR_1_OVER, "100"), (TPR_01_OVER, "1,000"))
        if (one := table.extra.get(metric)) is not None
    ]
    if not said:
        return f"The share at false alarms for 1 in 100 {NEEDS[TPR_AT_1_FPR]}."
    return f"It recognises {', and '.join(said)}."


def _highest(table: UpdateTable) -> str:
    (number_, client), one = table.highest
    written = short if table.metric == PSNR else number
    return (
        f"The highest figure is that of round {number_}, client {client}: "
        f"{written(one.estimate.value)}{' dB' if METRICS[table.metric].unit == 'dB' else ''}."
    )
