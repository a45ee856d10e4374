"""The report of a guarantee in a browser: it fits, asks for nothing, and escapes every name."""

import re
from pathlib import Path

from playwright.sync_api import Browser

from leakgauge.guarantee.question import QUESTION
from leakgauge.report.page import Page, render_page
from leakgauge.results.measurements import ACCUMULATED, Estimate, Histogram, Measurement, Run
from leakgauge.runs.question import Answer
from support.pages import SCREENS, drawn, opened, without_a_number

HOSTILE = "<script>alert(1)</script></svg>`'\"{{ 7 * 7 }} $x$"


def one(metric: str, value: float, **more: object) -> Measurement:
    return Measurement(
        question="guarantee", game=HOSTILE, dataset=HOSTILE, label=HOSTILE, secret=HOSTILE,
        defense="dpsgd:clip=2,noise=0.1", knowledge="adaptive", adversary="norm", metric=metric,
        round=ACCUMULATED, seed=0, estimate=Estimate(value, value / 2, 2 * value, 5000),
        chance=0.0, details={"first": HOSTILE, "second": "n" * 80}, **more,  # type: ignore[arg-type]
    )  # fmt: skip


def test_browser_shows_one_guarantee(browser: Browser, tmp_path: Path) -> None:
    names = ("pair_exact", "mechanism_exact", "mechanism_classic", "per_attribute_classic")
    theory = dict.fromkeys(names, 3.0) | {
        "largest_showable": 7.8, "largest_showable_low": 6.5, "largest_showable_gaussian_low": 40.0,
    }  # fmt: skip
    histogram = Histogram((0.0, 1.0, 2.0), (3, 1), (1, 3))
    measurements = [
        one("epsilon", 2.0, theory=theory, histogram=histogram),
        one("epsilon_gaussian", 9.0),
    ]
    settings = {
        "attribute": HOSTILE, "canary": "crafted-free", "mechanism": HOSTILE, "trials": 5000,
        "delta": 1e-5, "clip": 2.0, "noise": 0.1, "seed": 0, "table": HOSTILE,
    }  # fmt: skip
    run = Run("", settings, {"name": HOSTILE, "records": 10}, [HOSTILE])
    section = QUESTION.section(Answer(run, measurements, missing=(HOSTILE,)), tmp_path)
    page = Page("guarantee", [section], measurements, run.data, {}, repeat=section.next_command)
    text = render_page(page)
    path = tmp_path / "report.html"
    path.write_text(text)
    assert HOSTILE not in text
    assert "The promise does not hold" in text  # 4.5 at least, where 3 is promised
    assert drawn(browser, path, *SCREENS) == 1
    assert without_a_number(browser, path, 390) == []
    page_, _ = opened(browser, path, "light", 1280)
    table = page_.locator(".scroll:has(.promised)")
    assert table.evaluate("one => one.scrollWidth <= one.clientWidth")
    assert not re.search(r"\bnan\b|\binf\b", text)
