"""A report that a privacy officer reads in two minutes: cards first, the rest folded."""

from pathlib import Path

import pytest
from markupsafe import Markup

from leakgauge.report.page import caveats_of, folded
from leakgauge.report.section import ONE_TRAINING, Row, Section
from support import command
from support.pages import opened, unfolded
from support.reading import read, repeated
from support.tables import frame

MOST_WORDS = 700
SMALL = (
    "--label", "income", "--secret", "sex", "--rounds", 2, "--trials", 200, "--batch-size", 4,
    "--shadow", 120, "--workers", 1,
)  # fmt: skip


def audited(folder: Path, *words: object) -> Path:
    frame().to_csv(folder / "people.csv", index=False)
    out = folder / "run"
    done = command.run("audit", folder / "people.csv", *SMALL, *words, "--out", out)
    assert done.returncode == 0, done.stderr
    return out / "report.html"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    asks = [word for ask in ("property", "attribute", "reconstruction") for word in ("--ask", ask)]
    more = ("--set", "reconstruction.iterations=5", "--set", "reconstruction.images=8")
    return audited(tmp_path_factory.mktemp("few"), *asks, "--adversary", "panel", *more)


@pytest.fixture(scope="module")
def quick_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    more = ("--ask", "property", "--adversary", "energies")
    return audited(tmp_path_factory.mktemp("one"), *more)


def check(page: Path, cards: int) -> None:
    text = page.read_text("utf-8")
    seen, whole = read(text)
    assert len(seen.split()) <= MOST_WORDS
    assert len(whole.split()) > 2 * MOST_WORDS
    assert repeated(seen) == []
    assert repeated(whole) == []
    assert text.split('<ul class="answers">')[1].split("</ul>")[0].count("<li") == cards


@pytest.mark.slow
def test_the_page_is_read_in_two_minutes_and_repeats_no_sentence(page: Path) -> None:
    check(page, 3)


@pytest.mark.slow
def test_a_page_of_all_questions_is_read_in_two_minutes(tmp_path: Path) -> None:
    sets = (
        "guarantee.trials=400", "reconstruction.iterations=5", "timeline.critic_iterations=20",
        "timeline.iterations=5",
    )  # fmt: skip
    check(audited(tmp_path, "--ask", "all", *(w for one in sets for w in ("--set", one))), 7)


def test_a_browser_shows_the_same_words_and_opens_and_prints_the_rest(
    browser, quick_page: Path
) -> None:
    seen, whole = read(quick_page.read_text("utf-8"))
    shown, trouble = opened(browser, quick_page, "light", 1280)

    def words() -> int:
        return len(shown.evaluate("document.body.innerText").split())

    # The browser alone shows marks of lists; badges in table heads differ by a word or so.
    assert words() == pytest.approx(len(seen.split()), abs=15)
    shown.emulate_media(media="print")
    assert shown.locator("#inference-data").is_visible()
    shown.emulate_media(media="screen")
    assert not shown.locator("#inference-data").is_visible()
    shown.goto(quick_page.as_uri() + "#inference-data")
    assert shown.locator("#inference-data").is_visible(), "a link opens what holds its target"
    unfolded(shown)
    assert words() > 0.9 * len(whole.split())
    assert trouble == []
    shown.close()


def test_a_section_leaves_out_what_its_card_says_and_no_more() -> None:
    said = "Yes: `sex` is told by 9 of 10 batches of these records."
    html = Markup(
        '<p class="says">Yes: <code>sex</code> is told by 9 of 10 batches of these records.</p>'
        "<p>Another sentence that has as many words as the one above it.</p>"
        '<p class="small rule">Words are chosen by a rule.</p><p>these records</p>'
    )
    row = Row("property", "Strong leakage", "strong", f"{said} More may leak.")
    body, rules = folded(Section("toy", "Toy", html, [row]))
    assert body == (
        "<p>Another sentence that has as many words as the one above it.</p><p>these records</p>"
    )
    assert rules == ["Words are chosen by a rule."]


def test_command_page_and_card_say_that_it_was_one_training(tmp_path: Path) -> None:
    frame().to_csv(tmp_path / "people.csv", index=False)
    words = ("audit", tmp_path / "people.csv", *SMALL, "--adversary", "energies")
    for seeds in (1, 2):
        out = tmp_path / f"of-{seeds}"
        done = command.run(*words, "--seeds", seeds, "--out", out)
        assert done.returncode == 0, done.stderr
        assert command.run("card", out).returncode == 0
        places = [
            done.stdout,
            read((out / "report.html").read_text("utf-8"))[0],
            (out / "audit-card.md").read_text("utf-8"),
            (out / "audit-card.json").read_text("utf-8"),
        ]
        assert [text.count("One training: ") for text in places] == 4 * [2 - seeds]


def test_questions_without_seeds_share_one_sentence() -> None:
    sections = [Section(name, name, Markup(""), [], caveat=ONE_TRAINING) for name in "ab"]
    assert caveats_of(sections) == [ONE_TRAINING]
    own = Section("c", "c", Markup(""), [], caveat="One training: its own words.")
    assert caveats_of([*sections, own]) == ["One training: its own words."]
