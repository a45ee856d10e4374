"""Membership's part of a report in a browser: it fits, asks for nothing, and escapes names."""

from pathlib import Path

import pandas as pd
import pytest

from leakgauge.catalog import questions
from leakgauge.core.types import Dataset, Schema
from leakgauge.data.source import Source
from leakgauge.membership.question import QUESTION
from leakgauge.membership.spec import MembershipSpec
from leakgauge.runs.audit import describe, prepare_all, run_audit
from leakgauge.runs.page import write_page
from leakgauge.runs.question import Silent
from support.pages import HOSTILE, SCREENS, drawn, opened, unfolded
from support.worlds import network, noise

DEFENSES = ("none", "prune:rate=0.9")


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """The report on a model under two defenses, whose classes have hostile names."""
    data, out = noise(1200, seed=0, classes=4), tmp_path_factory.mktemp("page") / "run"
    schema = Schema((), HOSTILE, tuple(f"{HOSTILE} {code}" for code in range(4)), {})
    named = Dataset(data.x, data.y, schema=schema)
    task = network(seed=0, classes=4)
    source = Source(HOSTILE, pd.DataFrame(), None, None, "0", task=task, dataset=named)
    spec = MembershipSpec(
        task="mine:build", defense=DEFENSES, rounds=4, batch_size=16, lr=0.003,
        adversary=("loss", "label-loss:epochs=1", "gradients:epochs=1", "spectral:epochs=1"),
    )  # fmt: skip
    resolved = prepare_all({QUESTION.name: (QUESTION, spec)}, source=source)
    run_audit(out, describe("audit", resolved), resolved, progress=Silent(), workers=1)
    return write_page(out, questions())


def test_the_page_fits_its_screens_and_draws_its_charts(browser, page: Path) -> None:
    charts = drawn(browser, page, *SCREENS)
    assert charts == 3 * 4, "ROC, odds, norms and codes of each headline"


def test_the_page_says_what_was_found(browser, page: Path) -> None:
    shown, trouble = opened(browser, page, "light", 1280)
    text = unfolded(shown).locator("#membership").inner_text()
    for heading in (
        "Verdict",
        "Defenses",
        "Figures",
        "Records most at risk",
        "What the attacker",
    ):
        assert heading in text
    assert "White-box access adds" in text
    assert shown.locator("#membership-at-risk tbody tr").count() == 2 * 10
    assert shown.locator("#membership-c0-classes-title").count() == 1
    assert HOSTILE in text, "names are text, not markup"
    assert trouble == []
    shown.close()
