"""The leading tests, and titles, metrics and settings of tests for the report."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from leakgauge.inference.catalog import PANEL
from leakgauge.inference.metrics import BASELINES, BEYOND, LEAKAGE, METRICS
from leakgauge.report.grouping import Test, group_tests
from leakgauge.report.wording import label
from leakgauge.results.measurements import (
    ACCUMULATED,
    CHOSEN,
    HEADLINE,
    STACKED,
    Estimate,
    Measurement,
)
from leakgauge.results.metrics import OF_CLASSES, UTILITY
from leakgauge.results.scores import AUROC, MOST_AT_RISK, WORST_VALUE
from leakgauge.runs.spec import NONE

WHOLE = "sum of the rounds"

SUMS = {ACCUMULATED: f"plain {WHOLE}", STACKED: f"weighted {WHOLE}"}


def leading(tests: Sequence[Test]) -> list[Test]:
    """Return the tests that support an answer, in their order.

    For each game, defense and knowledge these are the test that held-out shadow data favour, and
    the tests without such data, which only their figures compare.
    """
    return [test for test in tests if test.has(HEADLINE) or not test.has(CHOSEN)]


def reading_of(one: Measurement) -> str:
    """Return the reading of a figure: a single round, or a sum of all rounds."""
    if one.round in SUMS:
        return SUMS[str(one.round)]
    return one.details.get("reading", f"round {one.round} alone")


def covers_all_rounds(one: Measurement) -> bool:
    """Return whether a figure comes from all rounds."""
    return one.round in SUMS or reading_of(one).endswith(WHOLE)


def called(adversary: str) -> str:
    """Return the name of an adversary in a sentence.

    >>> called("forest"), called("panel")
    ('the forest adversary', 'the panel of adversaries')
    """
    return "the panel of adversaries" if adversary == PANEL else f"the {adversary} adversary"


def adversary_tests(measurements: Sequence[Measurement]) -> list[Test]:
    """Return the tests of the adversaries, without the figures of the model.

    Raises:
        InputError: two measurements are the same figure of the same test.
    """
    tests = group_tests(
        [one for one in measurements if not of_value(one)],
        without=(*UTILITY, *OF_CLASSES, MOST_AT_RISK, WORST_VALUE, *BASELINES),
    )
    values: dict[tuple[str, ...], dict[str, Measurement]] = {}
    for one in measurements:
        if of_value(one):
            key = one.game, one.defense, one.knowledge, one.adversary
            values.setdefault(key, {})[of_value(one)] = one
    return [
        replace(one, values=values.get((one.game, one.defense, one.knowledge, one.adversary), {}))
        for one in tests
    ]


def secret_of(test: Test) -> str:
    """Return the name of the secret of a test."""
    return next(iter(test.figures.values())).secret


def of_value(one: Measurement) -> str:
    """Return the value of the secret that a figure compares with all others; empty for none."""
    family, _, value = one.metric.partition(": ")
    return value if family == AUROC else ""


@dataclass(frozen=True)
class Beyond:
    """What a test finds beyond the baseline that tells most without a gradient.

    Attributes:
        alone: what the baseline reads, such as ``"feature means alone"``.
        auroc: AUROC of the baseline.
        difference: AUROC of the test less that of the baseline.
    """

    alone: str
    auroc: float
    difference: Estimate

    @property
    def is_shown(self) -> bool:
        """Whether the whole interval of the difference is above 0."""
        return self.difference.low > 0


def beyond_of(test: Test) -> Beyond | None:
    """Return what a test finds beyond its strongest baseline; None without such figures."""
    whole = test.whole(AUROC)
    found = [(test.whole(metric), BASELINES[name]) for name, metric in BEYOND.items()]
    known = [(one.estimate, alone) for one, alone in found if one is not None]
    if whole is None or not known:
        return None
    difference, alone = min(known, key=lambda pair: pair[0].value)
    return Beyond(alone, whole.estimate.value - difference.value, difference)


def by_value(measurements: Sequence[Measurement]) -> dict[str, list[Measurement]]:
    """Return the headline's figures of single values by the title of the test."""
    titled: dict[str, list[Measurement]] = {}
    for one in measurements:
        if of_value(one):
            test = Test(one.game, one.defense, one.knowledge, one.adversary, {})
            titled.setdefault(title(test), []).append(one)
    return titled


def title(test: Test) -> str:
    """Return the test in a few words.

    >>> title(Test("property", "none", "static", "forest", {}))
    'Property inference, forest adversary'
    """
    words = [f"{test.game.capitalize()} inference", called(test.adversary).removeprefix("the ")]
    if test.defense != NONE:
        words += [f"defense {test.defense}", f"{test.knowledge} knowledge"]
    return ", ".join(words)


def in_order(names: Sequence[str]) -> list[str]:
    """Return metrics, with the known ones first in the order of their table.

    >>> in_order(["other", "success", "auroc"])
    ['auroc', 'success', 'other']
    """
    return [name for name in LEAKAGE if name in names] + [n for n in names if n not in LEAKAGE]


def metric_titles(tests: Sequence[Test]) -> dict[str, str]:
    """Return the title of every metric of the tests that tables show, by name."""
    untabled = {name for name, metric in METRICS.items() if not metric.tabled}
    names = dict.fromkeys(
        metric for test in tests for metric in test.metrics if metric not in untabled
    )
    return {name: LEAKAGE.get(name, label(name)) for name in in_order(list(names))}


def most_at_risk_of(measurements: Sequence[Measurement], test: Test) -> Measurement | None:
    """Return the figure of the user most at risk in a test; None without one."""
    key = (test.game, test.defense, test.knowledge, test.adversary)
    found = (one for one in measurements if one.metric == MOST_AT_RISK)
    same = (one for one in found if (one.game, one.defense, one.knowledge, one.adversary) == key)
    return next(same, None)


def baselines_of(measurements: Sequence[Measurement]) -> dict[str, dict[str, Measurement]]:
    """Return the baselines from labels and feature means by game and metric."""
    found: dict[str, dict[str, Measurement]] = {}
    for one in measurements:
        if one.metric in BASELINES:
            found.setdefault(one.game, {}).setdefault(one.metric, one)
    return found


def details_of(test: Test, *, step: int = 1) -> dict[str, str]:
    """Return the exact settings and fitted values, by round if rounds differ.

    Args:
        test: the test, with or without measurements.
        step: show every n-th round.
    """
    whole = test.whole("auroc")
    details = dict(sorted(whole.details.items())) if whole is not None else {}
    single = test.single("auroc")
    if all(dict(one.details) == details for one in single):
        return details
    return details | {
        f"round {one.round}": ", ".join(one.details.values())
        for one in single[::step]
        if one.details
    }
