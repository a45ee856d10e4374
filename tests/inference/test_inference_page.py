"""The page of inference: its charts, its size, its bytes, and how a browser shows it."""

import dataclasses
import html
import re
from collections.abc import Callable
from pathlib import Path

import matplotlib
import pytest
from playwright.sync_api import Browser, Page

from leakgauge.inference.report import views
from leakgauge.inference.report.titles import adversary_tests, title
from leakgauge.results.measurements import (
    ACCUMULATED,
    Measurement,
)
from support.made_runs import (
    DEFENSES,
    HOSTILE,
    LIMIT,
    defended,
    make_records,
    make_run,
    many,
    page_of_many,
    promised_run,
    render,
    section,
    stacked,
    visible,
)
from support.pages import SCREENS, opened, without_a_number


def test_page_lists_every_cell() -> None:
    page = page_of_many()
    text = visible(page)
    assert page.count("<article class=") == 2 * 6
    assert "4 of 6 tests show leakage; 1 shows none; 1 is not valid." in text
    for test in adversary_tests(many()):
        assert title(test) in text


def test_page_is_self_contained_and_small() -> None:
    page = page_of_many()
    assert len(page.encode()) < LIMIT
    assert "<script" not in page
    assert "http://" not in page
    assert "https://" not in page
    assert "@import" not in page
    assert set(re.findall(r'(?:href|src)="([^"]*)"', page)) >= {"#inference-verdict", "data:,"}
    for link in re.findall(r'(?:href|src)="([^"]*)"', page):
        assert link.startswith("#") or link == "data:,"
    assert all(link.startswith("#") for link in re.findall(r"url\(([^)]*)\)", page))


@pytest.mark.parametrize(
    ("adversaries", "rounds", "step"),
    [(3, 300, 3), pytest.param(12, 150, 5, marks=pytest.mark.slow)],
)
def test_a_long_run_stays_small(adversaries: int, rounds: int, step: int) -> None:
    records = [
        record
        for i in range(adversaries)
        for record in make_records(1.0, rounds=rounds, adversary=f"number {i}")
    ]
    page = render(make_run(), records)
    assert len(page.encode()) < LIMIT
    assert f"One round in {step} is shown" in visible(page)


def test_ids_are_unique_and_references_have_a_target() -> None:
    page = page_of_many()
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"(?:href=\"|url\()#([^\")]+)", page)) <= set(ids)


def test_colours_come_from_the_page() -> None:
    for svg in re.findall(r"<svg.*?</svg>", render(make_run(), make_records()), flags=re.S):
        assert "var(--accent)" in svg
        assert not re.search(r"#[0-9a-f]{6}\b", svg.replace('"#', '"'))


def test_everything_of_the_users_is_escaped() -> None:
    run = make_run(
        settings={"label": HOSTILE, "secret": HOSTILE, "group": HOSTILE, HOSTILE: HOSTILE},
        data={"name": HOSTILE, HOSTILE: HOSTILE, "secret_values": {HOSTILE: 1, "b": 2}},
        notes=(HOSTILE,),
        versions={HOSTILE: HOSTILE},
    )
    names = {"dataset": HOSTILE, "label": HOSTILE, "secret": HOSTILE}
    records = make_records(game=HOSTILE, adversary=HOSTILE, defense=HOSTILE, **names)
    hostile = [
        dataclasses.replace(r, metric=HOSTILE, details={HOSTILE: HOSTILE}) for r in records[:1]
    ]
    page = render(run, [*hostile, *records])
    assert "<script" not in page
    assert page.count("<svg") == page.count("</svg>") == 4
    assert "{{ 7 * 7 }}" in visible(page)


def test_the_same_records_give_the_same_bytes() -> None:
    first = render(make_run(), make_records())
    with matplotlib.rc_context({"lines.linewidth": 9, "axes.facecolor": "red"}):
        assert render(make_run(), make_records()) == first
    slower = [dataclasses.replace(record, seconds=9.0) for record in make_records()]
    assert render(make_run(), slower) == first


def test_matplotlib_is_left_as_it_was() -> None:
    before = dict(matplotlib.rcParams)
    render(make_run(), make_records())
    assert dict(matplotlib.rcParams) == before


@pytest.fixture(scope="module")
def defended_page() -> str:
    """Return the page of defenses with its chart of defenses alone: the others take long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(views, "_charts", lambda *_: [])
        return render(make_run(), defended())


def test_defenses_stand_side_by_side(defended_page: str) -> None:
    page = defended_page
    found = section(page)
    assert found.count("<svg") == found.count("<table") == 1
    marks = re.findall(r"<text[^>]*>(\d[ab])</text>", found)
    assert sorted(marks) == sorted(["0a", "0b", *(f"{i}{x}" for i in (1, 2, 3) for x in "aabb")])
    for name, (accuracy, *_) in DEFENSES.items():
        assert f"<code>{name}</code>" in found
        assert f"{100 * accuracy:g} %" in visible(found)
    for record in defended():
        if record.metric == "auroc" and record.round == ACCUMULATED:
            assert f"{record.estimate.value:.3f}" in visible(found)
    assert "A static one learned from undefended gradients" in visible(section(page, "adversary"))


def test_the_answer_is_the_worst_case_of_both_adversaries(defended_page: str) -> None:
    text = " ".join(visible(section(defended_page)).split())
    # The static forest is at 0.336 under sign and at 0.5 under dpsgd: neither is what counts.
    assert (
        " dpsgd:clip=2,noise=0.1 most lowers the AUROC of the strongest adversary: "
        "from 0.997 (0.977 to 1.000; forest) without a defense to 0.638 (0.618 to 0.658; forest); "
        "the model's test accuracy changes from 85 % (84.3 % to 85.7 %) to 79 % (78.3 % to "
        "79.7 %), which is a cost of 6.0 percentage points."
    ) in text
    assert "worst case over the 2 adversaries" in text
    assert "low AUROC of a static adversary does not show protection" in text
    assert "below 0.5 is a shift of features, not privacy" in text


def test_hostile_defenses_are_escaped_and_not_in_the_chart() -> None:
    names = {"none": DEFENSES["none"], HOSTILE: DEFENSES["sign"], "a,b:<i>": DEFENSES["sign"]}
    page = render(make_run(settings={"defense": [HOSTILE]}), by_forest(defended(names)))
    assert "<script" not in page
    assert "<i>" not in section(page)
    assert html.escape(HOSTILE, quote=False).split("`")[0] in section(page)
    chart = re.findall(r"<svg.*?</svg>", section(page), flags=re.S)
    assert len(chart) == 1
    assert "alert" not in chart[0]
    assert "{{ 7 * 7 }}" in visible(section(page))


def test_defenses_give_the_same_bytes() -> None:
    records = by_forest(defended({name: DEFENSES[name] for name in ("none", "sign")}))
    first = render(make_run(), records)
    with matplotlib.rc_context({"lines.linewidth": 9, "font.size": 30}):
        assert render(make_run(), records) == first


def by_forest(records: list[Measurement]) -> list[Measurement]:
    """Return the measurements of one adversary: each test draws two charts."""
    return [record for record in records if record.adversary != "logistic"]


@pytest.fixture(
    scope="module",
    params=[
        "hostile",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("many", "defended", "promised")),
    ],
)
def page_file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    long = "a_column_name_without_any_place_to_break_" * 3 + HOSTILE
    made: dict[str, Callable[[], list[Measurement] | str]] = {
        "many": page_of_many,
        "defended": lambda: defended(DEFENSES | {long: (0.8, 0.0, 1.0)}),
        "promised": lambda: stacked(defended()),
        "hostile": lambda: make_records(adversary=long, secret=long, dataset=long, label=long),
    }
    path = tmp_path_factory.mktemp("page") / f"{request.param}.html"
    run = promised_run(*list(DEFENSES)[1:]) if request.param == "promised" else make_run()
    page = made[request.param]()
    path.write_text(page if isinstance(page, str) else render(run, page), encoding="utf-8")
    return path


def test_browser_shows_it(browser: Browser, page_file: Path, tmp_path: Path) -> None:
    page, trouble = opened(browser, page_file, *SCREENS[0])
    for scheme, width in SCREENS:
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.screenshot(path=tmp_path / "page.png")  # Of what fits: a busy machine fails on more.
        backdrop = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", backdrop))) > 384) == (scheme == "light")
        text_has_contrast(page)
    page.close()
    assert trouble == []


def test_each_table_shows_a_number_on_a_phone(browser: Browser, page_file: Path) -> None:
    assert without_a_number(browser, page_file, 390) == []


def test_browser_prints_it_with_details_open(
    browser: Browser, page_file: Path, tmp_path: Path
) -> None:
    page, _ = opened(browser, page_file, "dark", 1280)
    table = page.locator("table.rounds")
    assert not table.is_visible()
    page.emulate_media(media="print")
    assert table.is_visible()
    assert page.pdf(path=tmp_path / "page.pdf", format="A4").startswith(b"%PDF")
    page.close()


def text_has_contrast(page: Page) -> None:
    colours = page.evaluate(
        """() => {
            const style = getComputedStyle(document.documentElement);
            const probe = document.body.appendChild(document.createElement("i"));
            const names = "page card ink muted accent strong clear weak inconclusive none below";
            return Object.fromEntries(names.split(" ").map(name => {
                    probe.style.color = `var(--${name})`;
                    return [name, getComputedStyle(probe).color.match(/\\d+/g).map(Number)];
                }));
        }"""
    )
    for name in set(colours) - {"page", "card"}:
        for back in ("page", "card"):
            assert contrast(colours[name], colours[back]) >= 4.5, (name, back)


def contrast(one: list[int], other: list[int]) -> float:
    """WCAG 2's contrast ratio of two sRGB colours."""

    def luminance(colour: list[int]) -> float:
        linear = [c / 3294.6 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)
