"""The meaning of a test's figures, in a sentence for non-specialist readers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from leakgauge.core.knowledge import ADAPTIVE, STATIC
from leakgauge.inference.games.blocks import most_blocks
from leakgauge.inference.report.games import cases, inferred, values
from leakgauge.inference.report.titles import (
    Beyond,
    adversary_tests,
    beyond_of,
    called,
    covers_all_rounds,
    title,
)
from leakgauge.inference.report.worst_value import WorstValue, leaking_value
from leakgauge.inference.run.over_seeds import BY_SEED, trials_interval
from leakgauge.inference.words import FRESH
from leakgauge.report.grouping import Test
from leakgauge.report.levels import HEADLINES, level_of, strength_of
from leakgauge.report.section import Level
from leakgauge.report.wording import number, percent
from leakgauge.results.measurements import Estimate, Measurement, Run
from leakgauge.results.scores import AUROC, WORST_VALUE, smallest_detectable
from leakgauge.runs.spec import NONE

ONE_VALUE = "One value leaks"
"""Headline where a value of the secret leaks, and the mean over the values does not show it."""

POWER = 0.8
"""Probability that a test detects its smallest detectable leakage."""


@dataclass(frozen=True)
class InferenceVerdict:
    """The answer of one test.

    Attributes:
        test: the test.
        title: title of the test.
        level: ``"strong"``, ``"clear"``, ``"weak"`` (leakage), ``"none"`` (none seen, and a large
            one excluded), ``"inconclusive"`` (neither), or ``"below"`` (the test is not valid).
        headline: the level in words; ``ONE_VALUE`` where the level is that of a single value.
        text: a few sentences of plain text with names in backticks.
        auroc: AUROC of the test, the mean over the values of a secret.
        chance: AUROC without leakage.
        one_value: the value on which the verdict rests, where the mean does not show its leak.
    """

    test: Test
    title: str
    level: Level
    headline: str
    text: str
    auroc: Estimate
    chance: float
    one_value: WorstValue | None = None

    @property
    def metric(self) -> str:
        """The metric of ``figure``."""
        return AUROC if self.one_value is None else WORST_VALUE

    @property
    def figure(self) -> Estimate:
        """The figure on which the verdict rests."""
        return self.auroc if self.one_value is None else self.one_value.among_all

    @property
    def strength(self) -> float:
        """The figure rescaled from guessing (0) to always right (1)."""
        return strength_of(self.figure, self.chance)


def verdicts(run: Run, measurements: Sequence[Measurement]) -> list[InferenceVerdict]:
    """Return one verdict for each test with an AUROC, in the order of the tests."""
    each = (verdict(run, test) for test in adversary_tests(measurements))
    return [one for one in each if one is not None]


def verdict(run: Run, test: Test) -> InferenceVerdict | None:
    """Return the verdict of a test; None without an AUROC."""
    one = test.whole("auroc")
    if one is None:
        return None
    level = level_of(one.estimate, one.chance)
    headline = HEADLINES[level]
    writers = {"none": _none_seen, "inconclusive": _inconclusive, "below": _below}
    text = writers[level](run, one) if level in writers else _leak(run, one, beyond_of(test))
    if level == "inconclusive" and _trials_show(one):
        headline, text = few_seeds(run), _undecided(run, one)
    worst, alone = leaking_value(test), None
    if worst is not None and level in ("none", "inconclusive"):
        level, headline, alone = level_of(worst.among_all), ONE_VALUE, worst
        mean = f"{text[:1].lower()}{text[1:]}"
        text = f"{_of_value(one, worst)} On average over the {worst.count} values, {mean}"
    elif worst is not None and level != "below":
        text = f"{text} {_of_value(one, worst)}"
    return InferenceVerdict(
        test, title(test), level, headline, text, one.estimate, one.chance, alone
    )


def _of_value(one: Measurement, worst: WorstValue) -> str:
    estimate, among = worst.alone, worst.among_all
    return (
        f"The value `{worst.name}` of {inferred(one.game, one.secret)} leaks most: {_who(one)} "
        f"tells it from all others with an AUROC of {number(estimate.value)} (its own "
        f"{percent(estimate.confidence)} interval {_both(estimate, number)}, from "
        f"{number(among.low)} as the highest of {worst.count}; guessing gives 0.5)."
    )


def _trials_show(one: Measurement) -> bool:
    """Return whether these trainings leak, so that only the spread over seeds leaves it open."""
    alone = trials_interval(one)
    return alone is not None and alone.low > one.chance


def few_seeds(run: Run) -> str:
    """Return the headline of seeds that differ too much for their number."""
    seeds = run.settings.get("seeds", 1)
    return f"{'Two' if seeds == 2 else seeds} seeds cannot decide"


def more_seeds(run: Run) -> int:
    """Return the number of seeds to take where fewer cannot decide."""
    return int(max(5, 2 * run.settings.get("seeds", 1)))


def smallest_visible(auroc: Estimate, chance: float) -> float:
    """Return the smallest AUROC that a test of this size detects with ``POWER``."""
    return smallest_detectable(auroc, chance, power=POWER)


def _leak(run: Run, one: Measurement, beyond: Beyond | None) -> str:
    words = {"strong": "Yes", "clear": "Yes, clearly", "weak": "Yes, weakly"}
    yes = words[level_of(one.estimate, one.chance)]
    several = len(values(run, one.game)) > 2
    case = "series of batches" if _is_fresh(run, one) else "batch"
    pair, kind = cases(one.game, case, several=several)
    skill = (
        f"given {pair}, it distinguishes them {percent(one.estimate.value)} of the time on "
        f"average over the {kind}s"
        if kind
        else f"given {pair}, it names the right one {percent(one.estimate.value)} of the time"
    )
    macro = f"; macro AUROC, each {kind} against the rest" if several else ""
    return (
        f"{yes}: from {_observed(run, one)} {_who(one)} infers {inferred(one.game, one.secret)}: "
        f"{skill} ({_interval(one)}; guessing gives {percent(one.chance)}{macro})"
        f"{_as_much(beyond)}."
    )


def _as_much(beyond: Beyond | None) -> str:
    """Return what tells as much without a gradient, as a clause; empty if nothing does."""
    if beyond is None or beyond.is_shown:
        return ""
    least = "more" if beyond.difference.high < 0 else "as much"
    auroc = number(beyond.auroc)
    return f"; {beyond.alone} tell {least}, without the batch's gradient (AUROC {auroc})"


def _none_seen(run: Run, one: Measurement) -> str:
    visible = smallest_visible(one.estimate, one.chance)
    return (
        f"{_sentence(_who(one))} finds no leakage of {_figures(run, one)}. The smallest leakage "
        f"that this test can see is an AUROC of {number(visible)} (with {percent(POWER)} power); "
        f"{_stronger(one)} may find more."
    )


def _inconclusive(run: Run, one: Measurement) -> str:
    return (
        f"{_sentence(_who(one))} neither finds nor rules out leakage of {_figures(run, one)}. A "
        f"leak up to an AUROC of {number(one.estimate.high)} would not have been seen; "
        f"{_what_limits(run, one)}. {_sentence(_stronger(one))} may find more."
    )


def _undecided(run: Run, one: Measurement) -> str:
    alone = trials_interval(one)
    assert alone is not None
    return (
        f"{few_seeds(run)} whether {_observed(run, one)} leak {inferred(one.game, one.secret)}. "
        f"For these trainings alone {_who(one)} has an AUROC of {number(alone.value)} "
        f"({_ends(alone, number)}, from the trials; by seed {one.details[BY_SEED]}), above the "
        f"{number(one.chance)} of guessing. For other trainings so few seeds allow "
        f"{number(one.estimate.low)} to {number(one.estimate.high)}. Use --seeds {more_seeds(run)}."
    )


def _what_limits(run: Run, one: Measurement) -> str:
    if limited_by_records(run, one.game):
        return "more trials would not change that: bring more records, or take smaller batches"
    return "use more trials or rounds"


def limited_by_records(run: Run, game: str) -> bool:
    """Return whether records, not trials, limit the number of independent groups of a game."""
    blocks, trials = (one.get(game) if isinstance(one, Mapping) else one
                      for one in (run.data.get("blocks"), run.settings.get("trials")))  # fmt: skip
    if blocks is None or trials is None:
        return False
    count = len(values(run, game))
    return int(blocks) < most_blocks(int(trials), max(1, count))


def _figures(run: Run, one: Measurement) -> str:
    return (
        f"{inferred(one.game, one.secret)} in {_observed(run, one)}: its AUROC is "
        f"{number(one.estimate.value)} ({_interval(one, share=False)}) and guessing gives "
        f"{number(one.chance)}"
    )


def _stronger(one: Measurement) -> str:
    unaware = one.defense != NONE and _known(one) == STATIC
    return f"a stronger adversary{', or one that knows the defense,' if unaware else ''}"


def _below(run: Run, one: Measurement) -> str:
    shift = {
        NONE: "the shadow and the private data",
        STATIC: "the gradients that a static adversary learned from and those that it sees",
        ADAPTIVE: "the defended gradients that the adversary learned from and those that it sees",
    }[NONE if one.defense == NONE else _known(one)]
    return (
        f"This test does not count: {_who(one)} does worse than guessing "
        f"{inferred(one.game, one.secret)} from {_observed(run, one)}, with an AUROC of "
        f"{number(one.estimate.value)} ({_interval(one, share=False)}; guessing gives "
        f"{number(one.chance)}). The features shifted between {shift}; this does not show privacy."
    )


def _interval(one: Measurement, *, share: bool = True) -> str:
    return _ends(one.estimate, percent if share else number)


def _ends(estimate: Estimate, written: Callable[[float], str]) -> str:
    return f"{percent(estimate.confidence)} interval {_both(estimate, written)}"


def _both(estimate: Estimate, written: Callable[[float], str]) -> str:
    return f"{written(estimate.low)} to {written(estimate.high)}"


def _who(one: Measurement) -> str:
    if one.defense == NONE:
        return called(one.adversary)
    aware = "that knows the defense" if _known(one) == ADAPTIVE else "unaware of the defense"
    return f"{called(one.adversary)} ({aware} `{one.defense}`)"


def _known(one: Measurement) -> str:
    return ADAPTIVE if one.knowledge == ADAPTIVE else STATIC


def _is_fresh(run: Run, one: Measurement) -> bool:
    return run.settings.get("batches") == FRESH and _rounds(run, one) > 1


def _rounds(run: Run, one: Measurement) -> int:
    rounds = run.settings.get("rounds")
    return rounds if covers_all_rounds(one) and isinstance(rounds, int) else 1


def _observed(run: Run, one: Measurement) -> str:
    size = run.settings.get("batch_size")
    if isinstance(size, Mapping):
        size = size.get(one.game)
    batch = "a batch of records" if size is None else f"a batch of {size} records"
    rounds = _rounds(run, one)
    if rounds == 1:
        return f"the gradients of {batch}"
    if _is_fresh(run, one):
        return f"the gradients of {rounds} batches{batch.removeprefix('a batch')}, one a round,"
    return f"the gradients of {batch} in {rounds} rounds of training"


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]
