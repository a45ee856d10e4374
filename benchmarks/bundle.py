"""Measure how long the page of many runs takes to open in Chromium, without a network.

Run: ``python benchmarks/bundle.py [--runs 100] [--repetitions 5] [FOLDER]``. FOLDER is an audit to
repeat; without one, audits of one question are made up. Each run has a date of its own. The page is
opened from its file in a new browser context. The time is that from the start of the navigation
until the list is filtered once, so it includes the page's script. The script ends with an error if
the median exceeds its limit.
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from leakgauge.catalog import questions
from leakgauge.core.files import write_text
from leakgauge.runs.bundle.writing import write_bundle

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
made: Any = import_module("support.many_runs")

LIMIT = 2.0
"""Largest number of seconds until the page can be used."""


def repeated(audit: Path, folder: Path, runs: int) -> None:
    """Copy an audit several times, a week apart."""
    keys = [one.name for one in (audit / "cells").iterdir()]
    for n in range(runs):
        copy = folder / f"run-{n:03}"
        shutil.copytree(audit, copy, ignore=shutil.ignore_patterns(".*", "work"))
        finished = (made.START + n * made.WEEK).isoformat()
        times = {key: {"seconds": 1.0, "finished": finished} for key in keys}
        write_text(copy / "timings.json", json.dumps(times))


def opened(browser: Browser, page: Path) -> float:
    """Return the seconds until the page is open and its list was filtered."""
    with browser.new_context(offline=True) as context:
        tab = context.new_page()
        start = time.perf_counter()
        tab.goto(page.as_uri())
        tab.locator("[name=question]").select_option(index=1)
        tab.locator("#shown", has_text=" of ").wait_for()
        return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--repetitions", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        runs, page = Path(place) / "runs", Path(place) / "page"
        if asked.folder is None:
            made.history(runs, asked.runs)
        else:
            repeated(asked.folder, runs, asked.runs)
        start = time.perf_counter()
        written = write_bundle([runs], page, questions())
        print(f"{written.runs} runs written in {time.perf_counter() - start:.1f} s, "
              f"page of {written.index.stat().st_size / 1e6:.1f} MB")  # fmt: skip
        found = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        times = [opened(browser, written.index) for _ in range(asked.repetitions)]
        browser.close()
    median = statistics.median(times)
    print(f"opened and filtered in {median:.2f} s ({min(times):.2f} to {max(times):.2f})")
    if median > LIMIT:
        sys.exit(f"expected at most {LIMIT} s")


if __name__ == "__main__":
    main()
