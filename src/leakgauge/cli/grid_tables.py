"""The tables that ``leakgauge run`` prints of a grid."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from leakgauge.cli.styles import verdict_text

if TYPE_CHECKING:
    from leakgauge.report.compare import Comparison, ComparisonRow
    from leakgauge.results.metrics import Metric
    from leakgauge.runs.question import Question

MOST_ROWS = 40
"""A longer table would push the rest off the screen; the report has all rows."""


def paper_table(rows: "Sequence[ComparisonRow]", metrics: "Mapping[str, Metric]") -> Table:
    """Return a table of figures next to those of a paper."""
    from leakgauge.report.wording import interval, number, plain, signed

    table = Table(title="ours next to the paper's", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("figure", overflow="fold")
    for name in ("metric", "ours", "95 % interval", "seeds", "paper", "difference"):
        table.add_column(name, justify="left" if name == "metric" else "right", no_wrap=True)
    for row in rows:
        ours, difference, metric = row.ours, row.difference, row.stated.metric
        table.add_row(
            Text(row.stated.title),
            metrics[metric].title if metric in metrics else metric,
            "not run" if ours is None else number(ours.value),
            "" if ours is None else interval(ours),
            "0" if ours is None else str(ours.n),
            plain(row.stated.value),
            "" if difference is None else signed(difference),
        )
    return table


def cells_table(comparison: "Comparison", question: "Question") -> Table:
    """Return a table of verdicts and headline figures by settings.

    Settings differ in their headline metric where a question has one for pictures and one for
    tables; what has none, as a guarantee, has its verdict alone.
    """
    from leakgauge.report.compare import distinguishing_names, groups, title_of
    from leakgauge.report.sweep import headline_of
    from leakgauge.report.wording import interval, number

    each = groups(comparison.cells, question.metrics)
    told = distinguishing_names([group.settings for group in each]) or ["data"]
    knowing = len({group.knowledge for group in each}) > 1
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("settings", overflow="fold")
    for name in (*["adversary"] * knowing, "verdict", "figure", "95 % interval", "seeds"):
        table.add_column(name, no_wrap=True)
    for group in each[:MOST_ROWS]:
        badge, metric = question.badge(group), headline_of([group], question.metrics)
        figure = ["", ""]
        if metric is not None:
            found = group.figures[metric]
            figure = [f"{question.metrics[metric].label} {number(found.value)}", interval(found)]
        table.add_row(
            Text(title_of(group.settings, told)),
            *[Text(group.knowledge)] * knowing,
            Text("") if badge is None else verdict_text(badge.words, badge.level),
            *map(Text, figure),
            str(len(group.keys)),
        )
    if len(each) > MOST_ROWS:
        table.add_row(Text(f"and {len(each) - MOST_ROWS} more, in the report"))
    return table
