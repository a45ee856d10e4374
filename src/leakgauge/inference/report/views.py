"""Values of each test and each defense for the template."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from leakgauge.core.knowledge import ADAPTIVE
from leakgauge.inference.metrics import LEAKAGE
from leakgauge.inference.report import charts
from leakgauge.inference.report.best_defense import answer, how_chosen
from leakgauge.inference.report.charts import tradeoff
from leakgauge.inference.report.defenses import CAUTION, DefenseTable
from leakgauge.inference.report.sentences import about_most_at_risk
from leakgauge.inference.report.titles import (
    details_of,
    leading,
    most_at_risk_of,
    reading_of,
    title,
)
from leakgauge.inference.report.verdict import InferenceVerdict, verdict
from leakgauge.report.grouping import Test
from leakgauge.report.levels import gauge
from leakgauge.report.section import LEVELS, Chart
from leakgauge.report.wording import label, number
from leakgauge.results.measurements import Measurement, rounds_of
from leakgauge.results.scores import AUROC, SUCCESS
from leakgauge.runs.question import Answer
from leakgauge.runs.spec import NONE

USED_ROUNDS = 200
"""Maximum number of rounds with details, over all tests at full length."""


@dataclass(frozen=True)
class TestView:
    """Values of a test for the template.

    Attributes:
        name: unique prefix of the test's anchors and charts.
        test: figures of the test.
        title: title of the test.
        verdict: verdict of the test; None without an AUROC.
        gauge: CSS lengths of the verdict's gauge by name.
        leads: whether it supports the answer.
        shown: whether it has charts and a verdict at full length.
        charts: charts of a test at full length.
        used: exact settings and fitted values.
        at_risk: sentences about the user most at risk; empty without users.
    """

    __test__ = False  # pytest looks for classes of this name

    name: str
    test: Test
    title: str
    verdict: InferenceVerdict | None
    gauge: Mapping[str, str]
    leads: bool
    shown: bool
    charts: Sequence[Chart]
    used: Mapping[str, str]
    at_risk: str = ""

    @property
    def reading(self) -> str:
        """Reading of the verdict's figure."""
        whole = self.test.whole(AUROC)
        return "" if whole is None else reading_of(whole)

    @property
    def held_out(self) -> float | None:
        """AUROC of that reading on held-out shadow batches."""
        whole = self.test.whole(AUROC)
        return None if whole is None else whole.held_out

    def named(self, when: int | str) -> str:
        """Return the rounds of a figure in words."""
        count = rounds_of(when)
        return label(str(when)) if count is None else f"First {count} rounds"

    def trials(self, when: int | str) -> int:
        """Return the number of trials behind the figures of a round."""
        return next(
            one.estimate.n for (_, round_), one in self.test.figures.items() if round_ == when
        )


@dataclass(frozen=True)
class DefenseView:
    """Values of a game's defenses for the template."""

    name: str
    table: DefenseTable
    svg: Markup | None
    says: str
    chosen: str
    caution: str = CAUTION


def test_views(
    answer: Answer, tests: Sequence[Test], shown: Sequence[Test], *, at: str
) -> list[TestView]:
    """Return a view of every test, with charts for ``shown``; ``at`` is the prefix of ids."""
    run = answer.run
    floors = {metric: charts.common_floor(tests, metric) for metric in (AUROC, SUCCESS)}
    step = step_for(shown, USED_ROUNDS)
    long, leads = {id(test) for test in shown}, {id(test) for test in leading(tests)}
    views = []
    for number_, test in enumerate(tests):
        answered, at_length = verdict(run, test), id(test) in long
        name = f"{at}-c{number_}"
        views.append(
            TestView(
                name=name,
                test=test,
                title=title(test),
                verdict=answered,
                gauge={} if answered is None else gauge(answered.auroc, answered.chance),
                leads=id(test) in leads,
                shown=at_length,
                charts=_charts(test, floors, name) if at_length else [],
                used=details_of(test, step=step) if at_length else {},
                at_risk=at_risk(answer.measurements, test),
            )
        )
    return views


def at_risk(measurements: Sequence[Measurement], test: Test) -> str:
    """Return sentences about the user most at risk in a test; empty without one."""
    one, mean = most_at_risk_of(measurements, test), test.whole(SUCCESS)
    return "" if one is None or mean is None else about_most_at_risk(one, mean)


def defense_views(tables: Sequence[DefenseTable], *, at: str) -> list[DefenseView]:
    """Return a view of each game's defenses; empty for a run without them."""
    return [
        DefenseView(
            name=f"{at}-d{number_}",
            table=table,
            svg=tradeoff(table, name=f"{at}-d{number_}-tradeoff"),
            says=answer(table),
            chosen=how_chosen(table),
        )
        for number_, table in enumerate(tables)
    ]


def by_urgency(views: Sequence[TestView]) -> list[TestView]:
    """Return the tests with a verdict, sorted by whether they lead, then by severity."""
    answered = [one for one in views if one.verdict is not None]
    return sorted(answered, key=lambda one: (not one.leads, *_calm(one)))


def _calm(view: TestView) -> tuple[float, float]:
    assert view.verdict is not None
    return -LEVELS[view.verdict.level], -view.verdict.auroc.value


def common_chance(tests: Sequence[Test]) -> dict[str, float]:
    """Return the chance level by metric if it is the same in every test; otherwise an empty dict.

    >>> common_chance([])
    {}
    """
    chances = {(m, one.chance) for test in tests for (m, _), one in test.figures.items()}
    common = dict(chances)
    return common if len(common) == len(chances) else {}


def step_for(tests: Sequence[Test], rows: int) -> int:
    """Return n to show every n-th round of the tests in at most about ``rows`` rows."""
    return max(1, math.ceil(sum(len(test.rounds) for test in tests) / rows))


def _charts(test: Test, floors: Mapping[str, float], name: str) -> list[Chart]:
    drawn = [
        Chart(
            f"{LEAKAGE[metric]} by round",
            _says(test, metric),
            charts.over_rounds(test, metric, floor=floors[metric], name=f"{name}-{metric}"),
        )
        for metric in (AUROC, SUCCESS)
    ]
    drawn.append(
        Chart(
            "ROC, true against false positive rate",
            _says(test, AUROC),
            charts.roc(test, name=f"{name}-roc"),
        )
    )
    return [one for one in drawn if one.svg is not None]


def _says(test: Test, metric: str) -> str:
    """Return a description of a chart for readers who cannot see it."""
    words = f"{LEAKAGE[metric]} of the test {title(test)}."
    single, whole = test.single(metric), test.whole(metric)
    if single:
        values = [one.estimate.value for one in single]
        words += f" Single rounds from {number(min(values))} to {number(max(values))}."
    if whole is not None:
        words += f" The {reading_of(whole)} {number(whole.estimate.value)}."
    return f"{words} The table of all rounds has every figure."


LIMIT = 12
"""Maximum number of tests at full length; three charts take about 25 kB."""


def selected(tests: Sequence[Test], *, limit: int = LIMIT) -> list[Test]:
    """Return the tests that are shown at full length, in their order.

    Up to ``limit`` tests are all shown. Otherwise the worst case of each game and defense is first:
    the leading test with the highest AUROC among adversaries that know the defense; then the other
    tests in order.
    """
    if len(tests) <= limit:
        return list(tests)
    worst: dict[tuple[str, str], Test] = {}
    for test in leading(tests):
        key = (test.game, test.defense)
        if _informed(test) and (key not in worst or _auroc(test) > _auroc(worst[key])):
            worst[key] = test
    first = {id(test) for test in [*worst.values()][:limit]}
    rest = [id(test) for test in tests if id(test) not in first]
    chosen = first | set(rest[: limit - len(first)])
    return [test for test in tests if id(test) in chosen]


def how_selected(count: int, of: int) -> str:
    """Return how the tests were selected; empty if all of them are shown."""
    if count == of:
        return ""
    return (
        f"{count} of {of} tests are shown at full length: for each game and defense the worst case "
        "(the highest AUROC of an adversary that knows the defense) as far as there is room, then "
        "the other tests in order. The tables hold every test."
    )


def _informed(test: Test) -> bool:
    return test.defense == NONE or test.knowledge == ADAPTIVE


def _auroc(test: Test) -> float:
    one = test.whole("auroc")
    return -1.0 if one is None else one.estimate.value
