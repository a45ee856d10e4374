"""Our figures and the paper's: the arithmetic over seeds, the charts, and the page."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser
from scipy import stats

from leakgauge.core.rng import stream
from leakgauge.inference.metrics import METRICS as INFERENCE
from leakgauge.inference.question import QUESTION
from leakgauge.inversion.metrics.table import METRICS as INVERSION
from leakgauge.report import sweep
from leakgauge.report.compare import (
    Comparison,
    FinishedCell,
    PaperFigure,
    compared_with_paper,
    distinguishing_names,
    groups,
    varying,
)
from leakgauge.report.compare_page import render_comparison
from leakgauge.report.wording import signed
from leakgauge.results.measurements import ACCUMULATED, Estimate, Measurement
from leakgauge.results.metrics import over_seeds
from support.made_runs import HOSTILE
from support.pages import SCREENS, drawn

METRICS = {**INFERENCE, **INVERSION}
BASE = {"data": "adult", "ask": "property", "defense": "none", "batch_size": 16, "seed": 0}


def record(value: float, *, knowledge: str = "static", **more: object) -> Measurement:
    found = Measurement(
        question="inference", game="property", dataset="adult", label="income", secret="sex",
        defense="none", knowledge=knowledge, adversary="forest", metric="auroc",
        round=ACCUMULATED, seed=0, estimate=Estimate(value, value - 0.02, value + 0.01, 500),
        chance=0.5, versions={"leakgauge": "0.1.0"},
    )  # fmt: skip
    return replace(found, **more)


def played(*records: Measurement, **settings: object) -> FinishedCell:
    return FinishedCell({**BASE, **settings}, records)


def comparison(cells: dict[str, FinishedCell], *paper: PaperFigure, **more: object) -> Comparison:
    whole = {"name": "g", "about": "", "size": "small", "asked": len(cells), "grids": [list(cells)]}
    return Comparison(cells=cells, paper=paper, **{**whole, **more})


def stated(value: float, *cells: str, **more: object) -> PaperFigure:
    told = {"where": {"ask": "property"}, "knowledge": "static", "metric": "auroc",
            "round": ACCUMULATED, "note": ""}  # fmt: skip
    return PaperFigure(value=value, cells=cells, **{**told, **more})


def test_the_papers_standard_deviation_stands_behind_its_value() -> None:
    assert stated(0.3004, std=0.0773).text == "0.3004 ± 0.0773"
    assert stated(0.3004).text == "0.3004"
    assert stated(0.9, round="first-5").title == "ask property, the first 5 rounds"
    cells = {"a": played(record(0.31))}
    page = render_comparison(comparison(cells, stated(0.3004, "a", std=0.0773)), METRICS)
    assert "<td>0.3004 ± 0.0773</td>" in page


def test_a_figure_of_the_first_rounds_is_beside_theirs() -> None:
    cells = {
        "a": FinishedCell(
            {**BASE}, [record(0.6), record(0.7, round="first-5"), record(0.8, round=5)]
        )
    }
    rows = [stated(0.0, "a", round=one) for one in (ACCUMULATED, "first-5", 5, "first-2")]
    found = [row.ours for row in compared_with_paper(comparison(cells, *rows), METRICS)]
    assert [None if one is None else one.value for one in found] == [0.6, 0.7, 0.8, None]


def test_of_several_adversaries_of_a_cell_the_papers_figure_stands_next_to_its_own() -> None:
    both = [record(0.6, adversary="forest"), record(0.8, adversary="linear")]
    cells = {"a": FinishedCell({**BASE, "adversary": ["forest", "linear"]}, both)}
    rows = [stated(0.0, "a", where={"adversary": name}) for name in ("linear", "forest", "mlp")]
    found = [row.ours for row in compared_with_paper(comparison(cells, *rows), METRICS)]
    assert [None if one is None else one.value for one in found] == [0.8, 0.6, None]


@pytest.mark.parametrize("values", [(0.61, 0.66), (0.7, 0.72, 0.69), (0.8, 0.81, 0.79, 0.83, 0.8)])
def test_the_interval_over_seeds_is_that_of_a_t_test(values: tuple[float, ...]) -> None:
    found = over_seeds([record(value) for value in values], METRICS["auroc"])
    expected = stats.ttest_1samp(values, 0.5).confidence_interval(0.95)
    assert found.value == pytest.approx(np.mean(values))
    assert (found.low, found.high) == pytest.approx((max(0, expected.low), min(1, expected.high)))
    assert (found.n, found.unit) == (len(values), "seeds")


def test_the_interval_over_seeds_holds_the_truth() -> None:
    """Three seeds of a normal figure: 95 % of the intervals hold its mean."""
    drawn = stream(0, "seeds").normal(0.7, 0.02, size=(2000, 3))
    found = [over_seeds([within(value, 0.0) for value in row], METRICS["auroc"]) for row in drawn]
    held = np.mean([one.low <= 0.7 <= one.high for one in found])
    assert stats.binomtest(round(2000 * held), 2000, 0.95).pvalue > 0.01


def within(value: float, reach: float) -> Measurement:
    return record(value, estimate=Estimate(value, value - reach, value + reach, 500))


def test_seeds_that_agree_by_luck_keep_the_width_of_the_trials() -> None:
    found = over_seeds([within(0.7 + seed / 1000, 0.06) for seed in range(4)], METRICS["auroc"])
    assert (found.low, found.high) == pytest.approx((0.6715, 0.7315))


@pytest.mark.parametrize("between", [0.0, 0.03, 0.1])
def test_the_interval_holds_the_mean_over_trainings_and_trials(between: float) -> None:
    rng, trials = stream(0, "seeds"), 0.03
    reach = float(stats.norm.ppf(0.975)) * trials
    drawn = 0.7 + np.hypot(between, trials) * rng.normal(size=(800, 3))
    found = [over_seeds([within(value, reach) for value in row], METRICS["auroc"]) for row in drawn]
    held = np.mean([one.low <= 0.7 <= one.high for one in found])
    assert held >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / 800)


def test_one_seed_keeps_its_own_interval_and_equal_seeds_the_widest() -> None:
    one = over_seeds([record(0.9)], METRICS["auroc"])
    assert (one.value, one.low, one.high, one.n) == (0.9, 0.88, 0.91, 1)
    perfect = [record(1.0, estimate=Estimate(1.0, low, 1.0, 500)) for low in (0.98, 0.99)]
    both = over_seeds(perfect, METRICS["auroc"])
    assert (both.value, both.low, both.high, both.n) == (1.0, 0.98, 1.0, 2)


def test_an_interval_stays_within_its_metric() -> None:
    wide = over_seeds([record(0.1), record(0.9)], METRICS["auroc"])
    assert (wide.low, wide.high) == (0.0, 1.0)
    advantage = over_seeds([record(v) for v in (0.1, 0.9)], METRICS["advantage"])
    assert (advantage.low, advantage.high) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("metric", "values", "low", "high"),
    [
        ("psnr", (-3.0, -1.0, -2.5), None, None),
        ("ssim", (-0.2, -0.1, -0.3), None, None),
        ("ssim", (-0.9, 0.9), -1.0, 1.0),
        ("lpips", (1.3, 1.1, 1.2), None, None),
        ("lpips", (0.1, 1.4), 0.0, None),
        ("columns: age", (0.1, 0.9), 0.0, 1.0),
        ("advantage", (-1.5, -2.5), -2.5, 1.0),
        ("a stranger", (-3.0, 9.0), None, None),
    ],
)
def test_the_groups_of_a_grid_clip_by_their_metrics(
    metric: str, values: tuple[float, ...], low: float | None, high: float | None
) -> None:
    """None: the interval is as Student's t gives it. A mean lies in its own interval."""
    cells = {
        str(seed): played(record(value, metric=metric), seed=seed)
        for seed, value in enumerate(values)
    }
    (group,) = groups(cells, METRICS)
    (row,) = compared_with_paper(comparison(cells, stated(0.0, *cells, metric=metric)), METRICS)
    found = group.figures[metric]
    plain = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert found.low <= found.value <= found.high
    assert found.low == pytest.approx(plain.low if low is None else low)
    assert found.high == pytest.approx(plain.high if high is None else high)
    assert row.ours == found


def test_a_row_takes_its_own_cells_knowledge_metric_and_round() -> None:
    cells = {
        key: played(
            record(value),
            record(value - 0.1, knowledge="adaptive"),
            record(value - 0.2, metric="success"),
            record(value - 0.3, round=2),
            seed=seed,
        )
        for seed, (key, value) in enumerate({"a": 0.8, "b": 0.82}.items())
    } | {"c": played(record(0.5), batch_size=4)}
    rows = compared_with_paper(
        comparison(
            cells,
            stated(0.9, "a", "b"),
            stated(0.9, "a", "b", knowledge="adaptive"),
            stated(0.9, "a", "b", metric="success"),
            stated(0.9, "a", "b", round=2),
            stated(0.9, "not done"),
            stated(0.9, "c", round=7),
        ),
        METRICS,
    )
    values = [None if row.ours is None else row.ours.value for row in rows]
    assert values == [pytest.approx(v) for v in (0.81, 0.71, 0.61, 0.51)] + [None, None]
    assert rows[0].difference == pytest.approx(-0.09)
    assert rows[4].difference is None
    assert [row.ours.n for row in rows if row.ours] == [2] * 4


def test_groups_part_settings_and_knowledge_but_not_seeds() -> None:
    cells = {
        "a": played(record(0.8), record(0.7, metric="accuracy", round=3), seed=0),
        "b": played(record(0.9), record(0.8, metric="accuracy", round=3), seed=1),
        "c": played(record(0.6), record(0.7, knowledge="adaptive"), defense="sign", seed=0),
    }
    found = groups(cells, METRICS)
    assert [(g.settings["defense"], g.knowledge, g.keys) for g in found] == [
        ("none", "static", ("a", "b")),
        ("sign", "static", ("c",)),
        ("sign", "adaptive", ("c",)),
    ]
    assert {m: e.value for m, e in found[0].figures.items()} == {
        "auroc": pytest.approx(0.85),
        "accuracy": pytest.approx(0.75),
    }
    assert [g.figures["auroc"].value for g in found[1:]] == [0.6, 0.7]


def swept() -> dict[str, FinishedCell]:
    """Two games along the batch size, two seeds."""
    return {
        f"{ask}{size}{seed}": played(
            record(0.6 + 0.004 * size + 0.01 * seed), ask=ask, batch_size=size, seed=seed
        )
        for ask in ("property", "attribute")
        for size in (16, 1, 64, 4)
        for seed in (0, 1)
    }


def test_charts_are_drawn_along_the_first_axis_and_parted_by_the_others() -> None:
    paper = [stated(0.99, "attribute160", "attribute161"), stated(0.9, "attribute40", round=2)]
    property_, attribute = sweep.sweep_charts(groups(swept(), METRICS), paper, METRICS)
    assert (property_.title, attribute.title) == ("ask property", "ask attribute")
    assert property_.axis == attribute.axis == "batch_size"
    assert attribute.values == [1, 4, 16, 64]
    assert {mark.value: mark.paper for mark in attribute.marks} == {
        1: None, 4: None, 16: 0.99, 64: None,
    }  # fmt: skip
    ours = {mark.value: mark.ours.value for mark in property_.marks}
    assert ours == {size: pytest.approx(0.605 + 0.004 * size) for size in (1, 4, 16, 64)}
    assert "16: 0.669 (the paper: 0.990)" in attribute.says
    low, high = sweep.limits_of([property_])
    assert low <= min(mark.ours.low for mark in property_.marks)
    assert high == 1.02


def test_names_along_an_axis_are_numbered_and_two_adversaries_stand_beside_each_other() -> None:
    cells = {
        name: played(record(0.6), record(0.8, knowledge="adaptive"), defense=name)
        for name in ("sign", HOSTILE)
    } | {"none": played(record(0.9))}
    (panel,) = sweep.sweep_charts(groups(cells, METRICS), [], METRICS)
    assert panel.two_sided
    assert not panel.numeric
    assert panel.values == ["sign", HOSTILE, "none"]
    svg = str(sweep.draw(panel, limits=(0.4, 1.02), name="x"))
    assert HOSTILE not in svg
    assert {"1", "2", "3", "defense"} <= set(re.findall(r">([^<>]+)</text>", svg))


def test_static_and_adaptive_marks_stand_on_their_ticks() -> None:
    cells = {
        name: played(record(0.6), record(0.8, knowledge="adaptive"), defense=name)
        for name in ("sign", "prune", "dpsgd")
    } | {"none": played(record(0.9))}
    (panel,) = sweep.sweep_charts(groups(cells, METRICS), [], METRICS)
    svg = str(sweep.draw(panel, limits=(0.4, 1.02), name="x"))
    ticks = [float(x) for x in re.findall(r'x="([\d.]+)"[^>]*>[1-4]</text>', svg)]
    marks = [float(x) for x in re.findall(r'<use[^>]* x="([\d.]+)"', svg)]
    near = [min(abs(mark - tick) for tick in ticks) for mark in marks]
    assert (len(ticks), len(marks)) == (4, 7)
    assert max(near) < 0.1 * (ticks[1] - ticks[0])
    assert min(near) < 0.1  # alone on its tick


def test_the_worst_verdict_leads_and_every_cell_has_one() -> None:
    ends = {"sign": Estimate(0.93, 0.9, 0.95, 500), "prune": Estimate(0.52, 0.48, 0.57, 500)}
    cells = {
        name: played(record(0.0, estimate=estimate), defense=name)
        for name, estimate in ends.items()
    }
    page = render_comparison(comparison(cells), METRICS, badge=QUESTION.badge)
    (summary,) = re.findall(r'<section id="summary".*?</section>', page, re.S)
    assert "Strong leakage" in summary
    assert "<code>sign</code>" in summary
    assert "0.930" in summary
    assert "No leakage found: 1 of 2" in summary
    rows = re.findall(r"<tr>\s*<th scope=\"row\">(\w+)</th>.*?badge (\w+)", page, re.S)
    assert rows == [("sign", "strong"), ("prune", "none")]
    assert 'id="summary"' not in render_comparison(comparison(cells), METRICS)


def test_what_comes_with_the_data_parts_no_charts_and_has_no_column() -> None:
    cells = {
        name: played(record(0.8), data=name, label=f"label of {name}", group=group)
        for name, group in (("adult", None), ("celeba", "identity"))
    }
    (panel,) = sweep.sweep_charts(groups(cells, METRICS), [], METRICS)
    assert (panel.axis, panel.values, panel.title) == ("data", ["adult", "celeba"], "")
    page = render_comparison(comparison(cells), METRICS)
    assert re.findall(r'<th scope="col">([^<]+)</th>', page) == ["Data", "Seeds", "AUROC"]
    assert "label of" not in page


def test_charts_of_two_grids_are_told_apart_in_few_words() -> None:
    """Each grid has one question alone, and its own prior; only the question is named."""
    grids = {
        ask: {f"{ask}{size}": played(record(0.8), ask=ask, prior=prior, batch_size=size)
              for size in (4, 16)}
        for ask, prior in (("property", "empirical"), ("proportion", "uniform"))
    }  # fmt: skip
    cells = {key: one for grid in grids.values() for key, one in grid.items()}
    two = comparison(cells, grids=[list(grid) for grid in grids.values()])
    page = render_comparison(two, METRICS)
    captions = re.findall(r"<figcaption>([^<]+)</figcaption>", page)
    assert captions == [f"AUROC along batch size: ask {ask}" for ask in grids]


def test_a_title_names_more_where_few_settings_would_merge_charts() -> None:
    """Question and batch size distinguish all cells, but two losses need two lines."""
    cells = {
        f"{ask}{size}": played(record(0.8), ask=ask, batch_size=size, loss=loss)
        for ask, loss, sizes in (("user", "a", (1, 4)), ("user", "b", (16, 64)),
                                 ("property", "b", (1, 4)))
        for size in sizes
    }  # fmt: skip
    each = groups(cells, METRICS)
    apart = distinguishing_names([one.settings for one in each])
    assert apart == ["ask", "batch_size"]
    found = sweep.sweep_charts(each, [], METRICS, apart=apart)
    assert [one.title for one in found] == [
        "ask user, loss a", "ask user, loss b", "ask property, loss b",
    ]  # fmt: skip


def test_nothing_is_drawn_where_only_the_seed_varies() -> None:
    cells = {str(seed): played(record(0.8), seed=seed) for seed in range(3)}
    assert sweep.sweep_charts(groups(cells, METRICS), [], METRICS) == []
    assert varying([cell.settings for cell in cells.values()]) == []
    assert 'id="charts"' not in render_comparison(comparison(cells), METRICS)


def test_the_page_has_every_figure_and_escapes_names() -> None:
    cells = swept() | {"h": played(record(0.7), data=HOSTILE, ask="user")}
    paper = (
        stated(0.9919, "property160", "property161", note=HOSTILE),
        stated(0.5, "later", where={"data": HOSTILE}),
    )
    page = render_comparison(
        comparison(cells, *paper, about=f"About {HOSTILE}", asked=20, name=HOSTILE), METRICS
    )
    assert HOSTILE not in page
    assert "17 of 20 cells" in page
    assert "<td>0.9919</td>" in page
    assert signed(0.669 - 0.9919) in page
    assert "not run" in page
    assert page.count("<svg") == 2
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")
    assert page == render_comparison(
        comparison(cells, *paper, about=f"About {HOSTILE}", asked=20, name=HOSTILE), METRICS
    )


def test_a_grid_without_the_papers_figures_has_no_such_table() -> None:
    assert 'id="paper"' not in render_comparison(comparison(swept()), METRICS)


def test_browser_shows_it(browser: Browser, tmp_path: Path) -> None:
    names = ["sign", "prune:rate=0.99", "a_name_without_any_place_to_break_" * 4 + HOSTILE]
    cells = swept() | {
        name: played(record(0.6), record(0.8, knowledge="adaptive"), defense=name) for name in names
    }
    grids = [list(swept()), names]
    shown = comparison(cells, stated(0.9, "property160"), grids=grids, about="5 % `of`")
    path = tmp_path / "report.html"
    path.write_text(render_comparison(shown, METRICS), encoding="utf-8")
    assert drawn(browser, path, *SCREENS) == 3
