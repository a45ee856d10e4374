"""Check that every local file and anchor that a built site links to exists.

``python docs/_ext/check_links.py build/docs`` prints what is missing. Sphinx checks the links of
the pages themselves; this also reads the theme's navigation, raw HTML and the reports.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LINKS = {"a": "href", "link": "href", "img": "src", "script": "src", "source": "src"}


class Page(HTMLParser):
    """Links and anchors of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the target and the anchors of a tag."""
        given = {name: value or "" for name, value in attrs}
        if tag in LINKS and LINKS[tag] in given:
            self.links.append(given[LINKS[tag]])
        self.anchors.update(given[one] for one in ("id", "name") if one in given)


def missing(site: Path) -> list[str]:
    """Return a line for each broken link of the site."""
    site = site.resolve()
    pages = {one: Page(one.read_text(encoding="utf-8")) for one in sorted(site.rglob("*.html"))}
    return [
        f"{path.relative_to(site)}: {link}"
        for path, page in pages.items()
        for link in dict.fromkeys(page.links)
        if not _leads(path, link, pages)
    ]


def _leads(path: Path, link: str, pages: dict[Path, Page]) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True  # another site, or a picture inside the page
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if not parts.fragment or target.suffix != ".html":
        return target.exists()
    return target in pages and unquote(parts.fragment) in pages[target].anchors | {"", "top"}


if __name__ == "__main__":
    found = missing(Path(sys.argv[1]))
    print("\n".join([*found, f"{len(found)} broken links"]))
    sys.exit(bool(found))
