"""Values of each test and each defense for the template."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from leakgauge.inference.metrics import LEAKAGE
from leakgauge.inference.report import charts
from leakgauge.inference.report.best_defense import answer, how_chosen
from leakgauge.inference.report.defenses import CAUTION, DefenseTable
from leakgauge.inference.report.rows import urgency
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
from leakgauge.report.section import Chart
from leakgauge.report.wording import label, number
from leakgauge.results.measurements import Measurement, rounds_of
from leakgauge.results.scores import AUROC, SUCCESS
from leakgauge.runs.question import Answer

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
        reading: reading of the verdict's figure; empty without one.
        held_out: AUROC of that reading on held-out shadow batches.
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
    at_risk: str
    reading: str
    held_out: float | None

    def named(self, when: int | str) -> str:
        """Return the rounds of a figure in words."""
        count = rounds_of(when)
        return label(str(when)) if count is None else f"First {count} rounds"

    def trials(self, when: int | str) -> int:
        """Return the number of trials behind the figures of a round."""
        return next(one.estimate.n for (_, at), one in self.test.figures.items() if at == when)


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
    for place, test in enumerate(tests):
        answered, at_length, name = verdict(run, test), id(test) in long, f"{at}-c{place}"
        whole = test.whole(AUROC)
        views.append(
            TestView(
                name=name,
                test=test,
                title=title(test),
                verdict=answered,
                gauge={} if answered is None else gauge(answered.figure, answered.chance),
                leads=id(test) in leads,
                shown=at_length,
                charts=_charts(test, floors, name) if at_length else [],
                used=details_of(test, step=step) if at_length else {},
                at_risk=at_risk(answer.measurements, test),
                reading=reading_of(whole) if whole else "",
                held_out=whole.held_out if whole else None,
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
            name=f"{at}-d{place}",
            table=table,
            svg=charts.tradeoff(table, name=f"{at}-d{place}-tradeoff"),
            says=answer(table),
            chosen=how_chosen(table),
        )
        for place, table in enumerate(tables)
    ]


def by_urgency(views: Sequence[TestView]) -> list[TestView]:
    """Return the tests with a verdict, sorted by whether they lead, then by severity."""
    answered = [(one, one.verdict) for one in views if one.verdict is not None]
    answered.sort(key=lambda pair: (not pair[0].leads, *(-rank for rank in urgency(pair[1]))))
    return [view for view, _ in answered]


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
    drawn = []
    for metric, floor in floors.items():
        svg = charts.over_rounds(test, metric, floor=floor, name=f"{name}-{metric}")
        drawn.append(Chart(f"{LEAKAGE[metric]} by round", _says(test, metric), svg))
    roc = charts.roc(test, name=f"{name}-roc")
    drawn.append(Chart("ROC, true against false positive rate", _says(test, AUROC), roc))
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
    the leading test with the highest AUROC, adaptive or static; then the other tests in order.
    """
    if len(tests) <= limit:
        return list(tests)
    worst: dict[tuple[str, str], Test] = {}
    for test in leading(tests):
        key = (test.game, test.defense)
        if key not in worst or _auroc(test) > _auroc(worst[key]):
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
        "(the highest AUROC, adaptive or static) as far as there is room, then the other tests in "
        "order. The tables hold every test."
    )


def _auroc(test: Test) -> float:
    one = test.whole("auroc")
    return -1.0 if one is None else one.estimate.value
