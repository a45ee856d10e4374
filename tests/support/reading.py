"""The words that a reader of a page sees before opening any details."""

import re
from collections import Counter
from html.parser import HTMLParser

UNSEEN = {"style", "script", "title", "svg"}
WITHOUT_END = {"meta", "link", "br", "img", "hr", "input", "col"}
INLINE = {"code", "strong", "span", "b", "i", "em", "a"}


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[tuple[str, bool]] = []
        self.seen: list[str] = []
        self.whole: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in WITHOUT_END:
            skip = any(name == "class" and value == "skip" for name, value in attributes)
            self.open.append(("title" if skip else tag, "open" in dict(attributes)))
        self._break(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.open:
            self.open.pop()
        self._break(tag)

    def _break(self, tag: str) -> None:
        if tag not in INLINE:
            self.seen.append("\n")
            self.whole.append("\n")

    def handle_data(self, text: str) -> None:
        tags = [tag for tag, _ in self.open]
        if UNSEEN & set(tags):
            return
        self.whole.append(text)
        closed = [
            at
            for at, (tag, is_open) in enumerate(self.open)
            if tag == "details" and not is_open and tags[at + 1 : at + 2] != ["summary"]
        ]
        if not closed:
            self.seen.append(text)


def read(page: str) -> tuple[str, str]:
    """Return the text outside of closed details, and all text of a page; a line for each block."""
    reader = _Reader()
    reader.feed(page)
    return "".join(reader.seen), "".join(reader.whole)


def repeated(text: str, *, words: int = 8) -> list[str]:
    """Return the sentences of at least so many words that stand in a text more than once."""
    lines = (" ".join(line.split()) for line in text.split("\n"))
    sentences = Counter(one for line in lines for one in re.split(r"(?<=[.!?])\s+", line))
    return [
        one
        for one, n in sentences.items()
        if n > 1 and one.count(" ") >= words - 1 and one.endswith((".", "!", "?"))
    ]
