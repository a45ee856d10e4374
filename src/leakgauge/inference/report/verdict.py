"""What a test's figures mean, in one sentence for a reader who is no specialist."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from leakgauge.inference.report.asking import cases, thing, values
from leakgauge.inference.report.cells import Cell, cells
from leakgauge.report.wording import number, percent
from leakgauge.results.measurements import ACCUMULATED, Estimate, Measurement, Run
from leakgauge.results.scores import smallest_detectable

Level = Literal["strong", "clear", "weak", "none", "below"]

STRONG_AUROC = 0.9
CLEAR_AUROC = 0.7
POWER = 0.8
"""How often the smallest leakage that a test could see would have been found."""

HEADLINES: dict[Level, str] = {
    "strong": "Strong leakage",
    "clear": "Clear leakage",
    "weak": "Weak leakage",
    "none": "No leakage found",
    "below": "Below chance: not valid",
}
LEAKS: tuple[Level, ...] = ("strong", "clear", "weak")


@dataclass(frozen=True)
class Verdict:
    """One test's answer.

    Attributes:
        test: which test, in a few words.
        level: ``"strong"``, ``"clear"``, ``"weak"`` (leakage), ``"none"`` (none found), or
            ``"below"`` (the test is not valid).
        headline: the level in words.
        text: one sentence or a few, plain text; names stand in backticks.
        auroc: the figure that was judged.
        chance: its value where nothing leaks.
    """

    test: str
    level: Level
    headline: str
    text: str
    auroc: Estimate
    chance: float


def level_of(auroc: Estimate, chance: float = 0.5) -> Level:
    """The word for an AUROC: by its interval whether it leaks, by its value how much.

    >>> level_of(Estimate(0.72, 0.65, 0.79, 200)), level_of(Estimate(0.72, 0.48, 0.9, 20))
    ('clear', 'none')
    """
    if auroc.high < chance:
        return "below"
    if auroc.low <= chance:
        return "none"
    value = round(auroc.value, 3)  # as shown, so that the word and the figure agree
    return "strong" if value >= STRONG_AUROC else "clear" if value >= CLEAR_AUROC else "weak"


def verdicts(run: Run, records: Sequence[Measurement]) -> list[Verdict]:
    """One verdict a test, in the order of the records; tests without an AUROC have none."""
    found = (verdict(run, cell) for cell in cells(records))
    return [one for one in found if one is not None]


def verdict(run: Run, cell: Cell) -> Verdict | None:
    """What the test found, or None where it has no AUROC."""
    record = cell.whole("auroc")
    if record is None:
        return None
    level = level_of(record.estimate, record.chance)
    text = {"none": _none_found, "below": _below}.get(level, _leak)(run, record)
    return Verdict(cell.title, level, HEADLINES[level], text, record.estimate, record.chance)


def _leak(run: Run, record: Measurement) -> str:
    yes = {"strong": "Yes", "clear": "Yes, clearly", "weak": "Yes, weakly"}[
        level_of(record.estimate, record.chance)
    ]
    several = len(values(run, record.game)) > 2
    case = "series of batches" if _fresh(run, record) else "batch"
    pair, kind = cases(record.game, case, several=several)
    skill = (
        f"shown {pair}, it tells which is which {percent(record.estimate.value)} of the time on "
        f"average over the {kind}s"
        if kind
        else f"shown {pair}, it names the right one {percent(record.estimate.value)} of the time"
    )
    macro = f"; macro AUROC, each {kind} against the rest" if several else ""
    return (
        f"{yes}: from {_seen(run, record)} {_who(record)} can tell {_thing(record)}: {skill} "
        f"({_interval(record)}; guessing gives {percent(record.chance)}{macro})."
    )


def _none_found(run: Run, record: Measurement) -> str:
    visible = smallest_detectable(record.estimate, record.chance, power=POWER)
    limit = (
        f"The smallest leakage that this test could have seen is an AUROC of "
        f"{number(visible)} (found with {percent(POWER)} power)"
        if visible < 1
        else "This test was too small to find even strong leakage reliably"
    )
    unaware = record.defense != "none" and _known(record) == "static"
    who = f"a stronger adversary{', or one that knows the defense,' if unaware else ''}"
    return (
        f"No leakage of {_thing(record)} found by {_who(record)} in {_seen(run, record)}: its "
        f"AUROC is {number(record.estimate.value)} ({_interval(record, share=False)}) and guessing "
        f"gives {number(record.chance)}. {limit}; {who} may find more."
    )


def _below(run: Run, record: Measurement) -> str:
    shift = {
        "none": "the shadow and the private data",
        "static": "what a static adversary learnt and what it sees",
        "adaptive": "the defended gradients that the adversary learnt from and those that it sees",
    }["none" if record.defense == "none" else _known(record)]
    return (
        f"This test does not count: {_who(record)} did worse than guessing {_thing(record)} from "
        f"{_seen(run, record)}, with an AUROC of {number(record.estimate.value)} "
        f"({_interval(record, share=False)}; guessing gives {number(record.chance)}). The features "
        f"shifted between {shift}; it is not evidence of privacy."
    )


def _interval(record: Measurement, *, share: bool = True) -> str:
    show = percent if share else number
    estimate = record.estimate
    return f"{percent(estimate.confidence)} interval {show(estimate.low)} to {show(estimate.high)}"


def _who(record: Measurement) -> str:
    if record.defense == "none":
        return f"the {record.adversary} adversary"
    aware = "that knows the defense" if _known(record) == "adaptive" else "unaware of the defense"
    return f"the {record.adversary} adversary ({aware} `{record.defense}`)"


def _thing(record: Measurement) -> str:
    return thing(record.game, record.secret)


def _known(record: Measurement) -> str:
    return "adaptive" if record.knowledge == "adaptive" else "static"


def _fresh(run: Run, record: Measurement) -> bool:
    return (
        run.settings.get("batches") == "fresh"
        and record.round == ACCUMULATED
        and _rounds(run, record) > 1
    )


def _rounds(run: Run, record: Measurement) -> int:
    rounds = run.settings.get("rounds")
    return rounds if record.round == ACCUMULATED and isinstance(rounds, int) else 1


def _seen(run: Run, record: Measurement) -> str:
    size = run.settings.get("batch_size")
    batch = "a batch of records" if size is None else f"a batch of {size} records"
    rounds = _rounds(run, record)
    if rounds == 1:
        return f"the gradients of {batch}"
    if _fresh(run, record):
        return f"the gradients of {rounds} batches{batch.removeprefix('a batch')}, one a round,"
    return f"the gradients of {batch} in {rounds} rounds of training"
