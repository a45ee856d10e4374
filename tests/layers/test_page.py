"""The section of layers in a browser: it fits, asks for nothing, and escapes names."""

from pathlib import Path

import pytest

from leakgauge.catalog import questions
from leakgauge.layers.question import QUESTION
from leakgauge.layers.spec import LayersSpec
from leakgauge.runs.audit import describe, prepare_all, run_audit
from leakgauge.runs.page import write_page
from leakgauge.runs.question import Silent
from support.pages import HOSTILE, SCREENS, drawn, opened, unfolded
from support.planted import odd


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """The report on a network of odd layers, with a hostile property."""
    out = tmp_path_factory.mktemp("page") / "run"
    source = odd(seed=0, secret=HOSTILE, names=(HOSTILE, "b"))
    spec = LayersSpec(
        task="mine:build", adversary=("logistic",), rounds=2, batch_size=16, shadow_batches=60,
        held_out=40, trials=50, kernel_records=40, records=10, under=0.5,
    )  # fmt: skip
    resolved = prepare_all({QUESTION.name: (QUESTION, spec)}, source=source)
    run_audit(out, describe("audit", resolved), resolved, progress=Silent(), workers=1)
    return write_page(out, questions())


def test_the_page_fits_its_screens_and_draws_its_charts(browser, page: Path) -> None:
    assert drawn(browser, page, *SCREENS) == 4, "AUROC, V-information, sensitivity, I(X; T)"


def test_the_page_says_what_was_found(browser, page: Path) -> None:
    shown, trouble = opened(browser, page, "light", 1280)
    text = unfolded(shown).locator("#layers").inner_text()
    for heading in (
        "Verdict",
        "Advice",
        "Map of the layers",
        "Do the measures predict the attack?",
    ):
        assert heading in text
    assert shown.locator("#layers-map tbody tr").count() == 6
    assert "1. words" in text
    assert HOSTILE in text, "names are text, not markup"
    assert trouble == []
    shown.close()
