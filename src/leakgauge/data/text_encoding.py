"""The bytes of a text file as UTF-8, whatever its encoding."""

import codecs
from collections.abc import Iterator

from leakgauge.core.checks import InputError, require

NOT_OF_FILES = ("idna", "punycode", "raw_unicode_escape", "unicode_escape", "undefined")
"""Python's text encodings in which no file is written."""

PART = 2**24
"""Bytes decoded at once: a text is never held as a whole next to its bytes."""

UTF8 = "utf-8"


def as_utf8(content: bytes, what: str, encoding: str | None) -> tuple[bytes, list[str]]:
    """Return a text as UTF-8 without a byte order mark, and notes on its encoding.

    Args:
        content: content of the file.
        what: the file, for messages.
        encoding: its encoding; None takes UTF-8 or UTF-16, or else Windows-1252.

    Raises:
        InputError: the content is not a text in this encoding, or Python does not know it.

    >>> as_utf8("\\ufeffage".encode(), "'a.csv'", None)
    (b'age', [])
    """
    if encoding is not None:
        return _named(content, what, encoding), []
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            note = "the text is UTF-16 (--encoding names another)"
            return content.decode("utf-16").encode(), [note]
        except UnicodeError:
            pass
    require(b"\0" not in content[:1000], f"{what} is not a text file; name its --encoding")
    if _is_utf8(content):
        return content.removeprefix(codecs.BOM_UTF8), []
    text = content.decode("cp1252", errors="replace")
    note = "the text is not UTF-8; read as Windows-1252 (--encoding names another)"
    return text.encode(), [note]


def _named(content: bytes, what: str, encoding: str) -> bytes:
    require(
        encoding.lower().replace("-", "_") not in NOT_OF_FILES,
        f"--encoding is {encoding!r}, which writes names or code, not files; take utf-8, "
        "utf-16, cp1252 or latin-1",
    )
    try:
        if codecs.lookup(encoding).name == UTF8 and _is_utf8(content):
            return content
        return content.decode(encoding).encode()
    except LookupError as error:
        raise InputError(
            f"--encoding is {encoding!r}, which Python does not know; take utf-8, utf-16, "
            "cp1252 or latin-1"
        ) from error
    except UnicodeError as error:
        raise InputError(f"{what} is not {encoding} text; name another --encoding") from error


def _is_utf8(content: bytes) -> bool:
    try:
        for _ in _decoded(content):
            pass
    except UnicodeDecodeError:
        return False
    return True


def _decoded(content: bytes) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(UTF8)()
    view = memoryview(content)
    for start in range(0, len(content), PART):
        yield decoder.decode(view[start : start + PART])
    yield decoder.decode(b"", final=True)
