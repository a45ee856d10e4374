"""Open pages in a headless browser."""

from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

HOSTILE = "<script>alert(1)</script></svg>`'\"{{ 7 * 7 }} $x$"
"""Name that a page must escape."""

SCREENS = tuple((scheme, width) for scheme in ("light", "dark") for width in (1280, 360))
"""Colour schemes and widths."""


def opened(browser: Browser, path: Path, scheme: Any, width: int) -> tuple[Page, list[str]]:
    """Return the page in a browser, with every error and every request other than the file."""
    page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 900})
    trouble: list[str] = []
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("requestfailed", lambda request: trouble.append(request.url))
    page.on("request", lambda r: None if r.url == path.as_uri() else trouble.append(r.url))
    page.goto(path.as_uri())
    return page, trouble


def unfolded(page: Page) -> Page:
    """Open all details of a page, as a reader who wants to see everything."""
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    return page


def without_a_number(browser: Browser, path: Path, width: int) -> list[str]:
    """Return the tables whose first number lies outside of the screen."""
    page, _ = opened(browser, path, "light", width)
    unfolded(page)
    found = page.evaluate(
        """() => [...document.querySelectorAll(".scroll")].filter(box => {
            const cells = [...box.querySelectorAll("tbody tr")].map(row => row.querySelector("td"));
            const ends = cells.filter(Boolean).map(cell => cell.getBoundingClientRect().right);
            return Math.max(0, ...ends) > box.getBoundingClientRect().right + 1;
        }).map(box => box.getAttribute("aria-labelledby"))"""
    )
    page.close()
    return list(found)


def drawn(browser: Browser, path: Path, *shown: tuple[Any, int]) -> int:
    """Check that the page fits and makes no requests, and return its number of charts.

    Args:
        browser: headless browser.
        path: path of the page.
        shown: pairs of a colour scheme and a width in pixels.
    """
    page, trouble = opened(browser, path, *shown[0])
    for scheme, width in shown:
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        unfolded(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    charts = page.locator("figure svg").count()
    page.close()
    assert trouble == []
    return int(charts)
