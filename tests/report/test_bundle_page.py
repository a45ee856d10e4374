"""The page of many runs in a browser, offline: filters, figures over time, side by side."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from leakgauge.catalog import questions
from leakgauge.report.wording import interval, number, signed
from leakgauge.results.measurements import ACCUMULATED
from leakgauge.runs.bundle.writing import write_bundle
from leakgauge.runs.differences import compare_runs, read_finished
from support.made_runs import NORMAL, make_records
from support.many_runs import DEFENSES, FALLS, START, STARTS, WEEK, history, write_audit
from support.pages import SCREENS, drawn

RUNS = 24
HOSTILE = "<img src=x onerror=alert(1)>`'\"{{ 7 * 7 }}&amp;"
"""Name that a folder can have, and a page must escape."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with weekly runs, and the page of them."""
    made = tmp_path_factory.mktemp("weekly")
    history(made / "runs", RUNS)
    write_bundle([made / "runs"], made / "page", questions())
    return made


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Iterator[Page]:
    """Return a page of a browser without a network that fails on errors and dialogs."""
    with browser.new_context(offline=True) as context:
        opened = context.new_page()
        opened.set_default_timeout(5000)
        opened.on("pageerror", lambda error: pytest.fail(str(error)))
        opened.on("dialog", lambda dialog: pytest.fail(dialog.message))
        yield opened


@pytest.fixture
def page(folder: Path, tab: Page) -> Page:
    tab.goto("about:blank")  # else an address with an anchor is not opened anew
    tab.goto((folder / "page" / "index.html").as_uri())
    return tab


def visible(page: Page) -> list[int]:
    """Return the numbers of the weeks in the list."""
    names = page.locator("#runs tbody tr:not([hidden]) th a").all_inner_texts()
    return [int(name.removeprefix("week-")) for name in names]


def choose(page: Page, *weeks: int) -> None:
    for week in weeks:
        page.get_by_label(f"Compare week-{week:03}").check()


def test_the_list_begins_with_the_latest_run_and_links_its_report(page: Page) -> None:
    assert visible(page) == list(range(RUNS))[::-1]
    page.get_by_role("link", name="week-003", exact=True).first.click()
    assert page.url.endswith("/reports/week-003.html")
    assert page.locator("h1").count() == 1


FILTERS: list[tuple[dict[str, str], Callable[[int], bool]]] = [
    ({"data": "clinic"}, lambda n: n % 4 == 0),
    ({"defense": "sign"}, lambda n: n % 3 == 1),
    ({"data": "adult", "defense": DEFENSES[2]}, lambda n: n % 4 != 0 and n % 3 == 2),
    ({"question": "property"}, lambda n: True),
    ({"verdict": "strong"}, lambda n: NORMAL.cdf(shift(n) / 2**0.5) >= 0.9),
    (
        {"defense": "sign", "verdict": "clear"},
        lambda n: n % 3 == 1 and 0.7 <= NORMAL.cdf(shift(n) / 2 / 2**0.5) < 0.9,
    ),
    ({"from": f"{START + 5 * WEEK:%Y-%m-%d}"}, lambda n: n >= 5),
    (
        {"from": f"{START + 2 * WEEK:%Y-%m-%d}", "to": f"{START + 4 * WEEK:%Y-%m-%d}"},
        lambda n: 2 <= n <= 4,
    ),
    ({"data": "clinic", "to": f"{START:%Y-%m-%d}", "defense": "sign"}, lambda n: False),
]
"""Values of filters, and whether the run of a week fits."""


def test_filters_show_the_runs_that_fit(page: Page) -> None:
    for filters, fits in FILTERS:
        for name, value in filters.items():
            field = page.locator(f"[name={name}]")
            field.fill(value) if name in ("from", "to") else field.select_option(value)
        expected = [n for n in range(RUNS) if fits(n)][::-1]
        assert visible(page) == expected, filters
        assert page.locator("#shown").inner_text() == f"{len(expected)} of {RUNS} runs"
        assert page.get_by_text("No run fits these filters.").is_visible() == (expected == [])
        if "defense" in filters:
            findings = page.locator("#runs li:visible").all_inner_texts()
            assert all(filters["defense"] in one for one in findings)
        page.get_by_role("button", name="Show all").click()
        page.locator("#shown", has_text=f"{RUNS} of {RUNS} runs").wait_for()


def shift(week: int) -> float:
    return STARTS - FALLS * week


def test_a_chart_shows_each_figure_at_its_date_with_its_interval(page: Page) -> None:
    figure = page.locator('#history figure[data-data="clinic"][data-defense="none"]')
    ticks = figure.locator("svg text[text-anchor=end]").all_text_contents()
    values = [float(text) for text in ticks if re.fullmatch(r"[\d.]+", text)]
    heights = [float(one.get_attribute("y1") or 0) for one in figure.locator("line.grid").all()]
    slope = (values[-1] - values[0]) / (heights[-1] - heights[0])

    def value(y: str | None) -> float:
        return values[0] + slope * (float(y or 0) - heights[0])

    weeks = [n for n in range(RUNS) if n % 4 == 0]
    marks = figure.locator(".mark").all()
    assert len(marks) == len(weeks)
    places = [float(one.locator("circle").get_attribute("cx") or 0) for one in marks]
    gaps = [other - one for one, other in pairwise(places)]
    assert max(gaps) - min(gaps) < 0.3
    for week, mark in zip(weeks, marks, strict=True):
        auroc, line = NORMAL.cdf(shift(week) / 2**0.5), mark.locator("line")
        assert value(mark.locator("circle").get_attribute("cy")) == pytest.approx(auroc, abs=0.003)
        assert value(line.get_attribute("y1")) == pytest.approx(auroc - 0.02, abs=0.003)
        assert value(line.get_attribute("y2")) == pytest.approx(min(1, auroc + 0.02), abs=0.003)
        assert number(auroc) in mark.locator("title").text_content()


def test_filters_apply_to_the_charts_too(page: Page) -> None:
    charts = page.locator("#history figure:not([hidden])")
    assert charts.count() == 6  # two tables, and three defenses of each
    page.locator("[name=data]").select_option("clinic")
    assert charts.count() == 3
    page.locator("[name=defense]").select_option("none")
    page.locator("[name=to]").fill(f"{START + 9 * WEEK:%Y-%m-%d}")
    assert charts.count() == 1
    marks = charts.locator(".mark")
    assert [marks.count(), charts.locator(".mark:not(.off)").count()] == [6, 3]


@pytest.mark.parametrize(("before", "after"), [(1, 2), (9, 5), (0, 4), (3, 10)])
def test_two_runs_stand_side_by_side_as_compare_computes_it(
    page: Page, folder: Path, before: int, after: int
) -> None:
    choose(page, before, after)
    page.get_by_role("link", name="Compare", exact=True).click()
    sides = (folder / "runs" / f"week-{n:03}" for n in sorted((before, after)))
    found = compare_runs(*map(read_finished, sides), questions())
    rows = page.locator("#compared table").first.locator("tbody tr")
    assert rows.count() == len(found.main) > 0
    for one, row in zip(found.main, rows.all(), strict=True):
        figures = (one.before.estimate, one.after.estimate)
        expected = [text for each in figures for text in (number(each.value), interval(each))]
        expected += [signed(one.estimate.value),
                     f"{signed(one.estimate.low)} to {signed(one.estimate.high)}"]  # fmt: skip
        texts = row.locator("td strong, td:has(strong) span").all_inner_texts()
        assert texts == expected
        assert row.locator(".badge").inner_text() == one.verdict
    text = page.locator("#compared").inner_text()
    assert all(line in text for line in found.warnings)
    assert f"Settings that differ: {len(found.changed)}" in text
    page.get_by_text("How to read the intervals").wait_for()
    assert all(line.replace("`", "'") in text for line in found.notes)


def test_a_pair_that_is_not_on_the_page_has_its_command(page: Page) -> None:
    choose(page, 0, 1)  # of different data
    text = page.locator("#compared").inner_text()
    assert "leakgauge compare week-000 week-001" in text


def test_a_third_choice_replaces_the_first_and_keys_are_enough(page: Page) -> None:
    choose(page, 1)
    page.get_by_label("Compare week-002").focus()
    page.keyboard.press("Space")
    assert "week-001 (2026-01-12 09:30) and week-002" in page.locator("#chosen").inner_text()
    choose(page, 3)
    chosen = page.locator("#runs .pick input:checked")
    assert [chosen.nth(n).get_attribute("aria-label") for n in range(chosen.count())] == [
        "Compare week-003",
        "Compare week-002",
    ]
    page.locator("#compare").focus()
    page.keyboard.press("Enter")
    assert page.url.endswith("#side")
    page.get_by_label("Compare week-003").uncheck()
    assert "choose another run" in page.locator("#chosen").inner_text()


def test_the_page_fits_each_screen_and_asks_for_nothing(folder: Path, browser: Browser) -> None:
    charts = drawn(browser, folder / "page" / "index.html", *SCREENS, ("light", 390))
    assert charts == 6


def test_the_list_and_the_charts_need_no_script(folder: Path, browser: Browser) -> None:
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto((folder / "page" / "index.html").as_uri())
        assert len(visible(page)) == RUNS
        assert page.locator("#filters").is_hidden()
        assert page.locator("#history figure svg").first.is_visible()


def test_names_of_users_are_text(tmp_path: Path, tab: Page) -> None:
    for n in range(2):
        records = make_records(2.0 - n, 0.02, 1, secret=HOSTILE, adversary=HOSTILE)
        records += make_records(1.0, 0.02, 1, secret=HOSTILE, defense=HOSTILE)[:-1]
        records = [replace(one, label=HOSTILE) for one in records]
        run = tmp_path / "runs" / f"{HOSTILE}{n}"
        write_audit(run, records, when=START + n * WEEK, data=HOSTILE, seed=n)
    (tmp_path / "runs" / f"bad{HOSTILE}").mkdir()
    (tmp_path / "runs" / f"bad{HOSTILE}" / "run.yaml").write_text("</script><script>alert(2)")
    write_bundle([tmp_path / "runs"], tmp_path / "page", questions())
    tab.goto((tmp_path / "page" / "index.html").as_uri())
    page = tab
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2
    assert page.locator("#runs tbody th a").first.inner_text() == f"{HOSTILE}1"
    page.locator("[name=data]").select_option(HOSTILE)
    page.locator("[name=defense]").select_option(HOSTILE)
    assert page.locator("#runs tbody tr:visible").count() == 2
    for box in page.locator("#runs .pick input").all():
        box.check()
    compared = page.locator("#compared")
    assert compared.locator("h3").first.inner_text() == f"{HOSTILE}0 → {HOSTILE}1"
    assert f"property of {HOSTILE}" in compared.inner_text()
    assert f"bad{HOSTILE}" in page.locator("#unread").inner_text()
    assert page.locator("img").count() == 0


def test_the_figures_of_the_list_are_those_over_all_rounds(page: Page) -> None:
    shown = page.locator("#runs tbody tr").last.locator("li:visible").inner_text()
    (figure,) = [one for one in make_records(shift(0), 0.02, 1)
                 if (one.metric, one.round) == ("auroc", ACCUMULATED)]  # fmt: skip
    assert f"AUROC {number(figure.estimate.value)}, {interval(figure.estimate)}" in shown


@pytest.mark.slow
def test_a_hundred_runs_are_shown_filtered_and_compared(tmp_path: Path, tab: Page) -> None:
    history(tmp_path / "runs", 100)
    write_bundle([tmp_path / "runs"], tmp_path / "page", questions())
    tab.goto((tmp_path / "page" / "index.html").as_uri())
    assert len(visible(tab)) == 100
    tab.locator("[name=data]").select_option("clinic")
    assert len(visible(tab)) == 25
    chart = tab.locator('#history figure[data-data="clinic"][data-defense="none"]')
    assert chart.locator(".mark").count() == 25
    choose(tab, 96, 92)
    assert tab.locator("#compared table").count() > 0
