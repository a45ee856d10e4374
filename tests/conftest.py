"""Fixtures and hooks that several test files share.

Heavy modules are imported where they are used: the process that only hands out tests needs none.
"""

import gc
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

collect_ignore_glob = ["support/flower_stock/*", "support/flare_stock/*"]
"""Apps that frameworks import in folders of their own; a doctest would import them here."""

MARK_OF_FIXTURE = {"browser": "browser", "data_folder": "real"}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without the garbage collector, which would go over each imported module again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test that uses the browser or real data, also through another fixture."""
    for item in items:
        for fixture in MARK_OF_FIXTURE.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(MARK_OF_FIXTURE[fixture])


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """Use one thread, as in an audit; threads slow small problems down."""
    from leakgauge.core.threads import one_thread

    with one_thread():
        yield


@pytest.fixture
def quiet_flower() -> Iterator[None]:
    """Let Flower log errors alone."""
    log = logging.getLogger("flwr")
    level = log.level
    log.setLevel(logging.ERROR)
    yield
    log.setLevel(level)


@pytest.fixture
def few_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let searches try few factors of what they rebuilt, where a test is not about that factor."""
    from leakgauge.inversion.search import objective

    monkeypatch.setattr(objective, "SCALES", (1.0, 1.05, 1 / 1.05, 4.0, 0.25))


@pytest.fixture(scope="module")
def blank_charts() -> Iterator[None]:
    """Leave charts blank where pages are written and a test is not about them: they take long."""
    from matplotlib.figure import Figure

    def write(_figure: Figure, file: TextIO, **_settings: object) -> None:
        file.write("<svg></svg>")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", write)
        yield


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Return the folder of real data; if it is named, a missing file is a failure."""
    from leakgauge.data.named import DATA_VARIABLE
    from leakgauge.data.named import data_folder as named_folder

    folder = named_folder()
    if folder is None:
        pytest.skip(f"{DATA_VARIABLE} is not set: no real data")
    assert folder.is_dir(), f"{DATA_VARIABLE} names {str(folder)!r}, which is not a folder"
    return folder


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    """Return headless Chromium; without it, tests of pages are skipped, or fail in CI."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None and os.environ.get("CI"):
        pytest.fail("chromium is not installed, and CI asks for it")
    if found is None:
        pytest.skip("chromium is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield started
        started.close()
