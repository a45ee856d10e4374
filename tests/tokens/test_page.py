"""The section of the timeline in a browser: it fits, asks for nothing, and escapes names."""

from pathlib import Path

import pytest

from leakgauge.catalog import questions
from leakgauge.core.types import Task
from leakgauge.runs.audit import describe, prepare_all, run_audit
from leakgauge.runs.page import write_page
from leakgauge.runs.question import Silent
from leakgauge.tokens.question import QUESTION
from leakgauge.tokens.spec import TimelineSpec
from support.linear import telling
from support.pages import HOSTILE, SCREENS, drawn, opened, unfolded
from support.planted import source_of


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """The report of two tokens, with hostile data."""
    out = tmp_path_factory.mktemp("page") / "run"
    made = telling()
    assert made.task is not None
    assert made.dataset is not None
    source = source_of(Task(made.task.model), made.dataset, name=HOSTILE)
    spec = TimelineSpec(
        task="mine:build", batch_size=2, checkpoints=(0, 1, 3), iterations=5,
        critic_iterations=25, width=16,
    )  # fmt: skip
    resolved = prepare_all({QUESTION.name: (QUESTION, spec)}, source=source)
    run_audit(out, describe("audit", resolved), resolved, progress=Silent(), workers=1)
    return write_page(out, questions())


def test_the_page_fits_its_screens_and_draws_its_charts(browser, page: Path) -> None:
    assert drawn(browser, page, *SCREENS) == 2, "the bound; matched and mismatched scores"


def test_the_page_says_what_was_found(browser, page: Path) -> None:
    shown, trouble = opened(browser, page, "light", 1280)
    text = unfolded(shown).locator("#timeline").inner_text()
    for words in (
        "Verdict",
        "Curves over the training",
        "Checkpoints",
        "Advice: noise by phase",
        "held-out lower bound",
        "not a guarantee",
    ):
        assert words in text
    assert shown.locator("#timeline-checkpoints tbody tr").count() == 3
    assert "--set timeline.token=autoencoder,transformer" in shown.locator("#next").inner_text()
    assert HOSTILE in shown.locator("h1").inner_text(), "names are text, not markup"
    assert trouble == []
    shown.close()
