"""Charts on the page of a grid: leakage against utility, and the rounds of each cell."""

from collections.abc import Sequence
from dataclasses import replace

from markupsafe import Markup

from leakgauge.inference.metrics import METRICS
from leakgauge.inference.report import charts as of_tests
from leakgauge.inference.report.charts import draw
from leakgauge.inference.report.defenses import Point
from leakgauge.inference.report.titles import adversary_tests, leading
from leakgauge.inference.run.over_seeds import combined
from leakgauge.report.compare import Comparison, Group, distinguishing_names, title_of
from leakgauge.report.grouping import Test
from leakgauge.report.section import Chart
from leakgauge.report.wording import number, plain
from leakgauge.results.scores import ADVANTAGE, AUROC, TASK_AUROC
from leakgauge.runs.spec import NONE

MOST = 12
"""Maximum number of cells with a chart of their rounds."""

_ROUNDS = Markup(
    '<span class="key single">single rounds</span>'
    '<span class="key sums">plain sum of the rounds so far</span>'
    '<span class="key chance">guessing</span>'
)
_DEFENSES = Markup(
    '<span class="key whole">no defense</span><span class="key adaptive">adaptive</span>'
    '<span class="key static">static</span>'
)


def charts(comparison: Comparison, groups: Sequence[Group]) -> list[Chart]:
    """Return the additional charts on the page of a grid; the first has the legend.

    Args:
        comparison: finished cells.
        groups: cells by their settings and the adversary's knowledge, over seeds.
    """
    utility, rounds = _against_utility(groups), _over_rounds(comparison, groups)
    made = [*utility, *rounds]
    legend = (_DEFENSES if utility else Markup("")) + (_ROUNDS if rounds else Markup(""))
    return [replace(one, legend=legend) for one in made[:1]] + made[1:]


def _against_utility(groups: Sequence[Group]) -> list[Chart]:
    """Return charts of advantage against the AUROC of the task (Li et al., CCS 2024, Figure 6)."""
    measured = [one for one in groups if {ADVANTAGE, TASK_AUROC} <= set(one.means)]
    undefended = [{k: v for k, v in one.settings.items() if k != "defense"} for one in measured]
    names = distinguishing_names(undefended)
    by_title: dict[str, list[Group]] = {}
    for one in measured:
        by_title.setdefault(title_of(one.settings, names), []).append(one)
    return [
        _tradeoff(title, several, position)
        for position, (title, several) in enumerate(by_title.items())
        if len({plain(one.settings["defense"]) for one in several}) > 1
    ]


def _tradeoff(title: str, groups: Sequence[Group], position: int) -> Chart:
    defenses = list(dict.fromkeys(plain(one.settings["defense"]) for one in groups))
    points = []
    for one in groups:
        name = plain(one.settings["defense"])
        kind, mark = NONE if name == NONE else one.knowledge, str(defenses.index(name) + 1)
        points.append(Point(mark, kind, one.figures[TASK_AUROC], one.figures[ADVANTAGE]))
    across = METRICS[TASK_AUROC].title
    return Chart(
        caption=_caption(f"Advantage (upwards) against {across} (rightwards)", title),
        says="; ".join(map(_described, groups)),
        svg=draw(points, across, 0.0, (), name=f"utility-{position}"),
        names=defenses,
    )


def _described(one: Group) -> str:
    return (
        f"{plain(one.settings['defense'])}, {one.knowledge}: advantage "
        f"{number(one.figures[ADVANTAGE].value)}, AUROC of the task "
        f"{number(one.figures[TASK_AUROC].value)}"
    )


def _over_rounds(comparison: Comparison, groups: Sequence[Group]) -> list[Chart]:
    """Return charts of AUROC by round and of the rounds so far (same paper, Figures 2 and 4)."""
    found = [(one, test) for one in groups if (test := _test(comparison, one)) is not None]
    if not found or len(found) > MOST:
        return []
    tests = [test for _, test in found]
    floor = of_tests.common_floor(tests, AUROC)
    names = distinguishing_names([one.settings for one, _ in found])
    several = len({one.knowledge for one, _ in found}) > 1
    made = []
    for position, (one, test) in enumerate(found):
        parts = title_of(one.settings, names), one.knowledge if several else ""
        caption = _caption("AUROC by round", ", ".join(filter(None, parts)))
        svg = of_tests.over_rounds(test, AUROC, floor=floor, name=f"rounds-{position}")
        made.append(Chart(caption, _rounds_described(test), svg))
    return made


def _test(comparison: Comparison, group: Group) -> Test | None:
    """Return the leading test of a group over its seeds; None for a single round."""
    measured = [
        one
        for key in group.keys
        for one in comparison.cells[key].measurements
        if one.knowledge == group.knowledge
    ]
    tests = leading(adversary_tests(combined(measured)))
    return next((test for test in tests if len(test.single(AUROC)) > 1), None)


def _rounds_described(test: Test) -> str:
    single = "; ".join(f"{one.round}: {number(one.estimate.value)}" for one in test.single(AUROC))
    sums = "; ".join(f"{n}: {number(one.estimate.value)}" for n, one in test.added_up(AUROC))
    text = f"AUROC of single rounds: {single}."
    return f"{text} Sums of the rounds so far: {sums}." if sums else text


def _caption(what: str, title: str) -> str:
    return f"{what}: {title}" if title else what
