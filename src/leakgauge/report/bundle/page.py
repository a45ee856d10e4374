"""Renders the page of many runs."""

import base64
import hashlib
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from leakgauge.core.checks import require
from leakgauge.core.versions import versions
from leakgauge.report.bundle.entry import LEVEL_WORDS, Entry
from leakgauge.report.bundle.history import HEIGHT, LEFT, RIGHT, WIDTH, series_of
from leakgauge.report.bundle.pair import Compared, Texts, plain_pairs
from leakgauge.report.section import LEVELS
from leakgauge.report.templates import render
from leakgauge.results.metrics import CONFIDENCE

SCRIPT = "bundle.js"
MARK = '<main data-page="leakgauge bundle">'
"""What the page of a bundle holds, and no other page; names in it are escaped."""


@dataclass(frozen=True)
class Bundle:
    """The contents of the page.

    Attributes:
        entries: the runs, in the order of the list.
        pairs: comparisons of two of them; read once.
        unread: reasons by name, for folders that are not in the list.
    """

    entries: Sequence[Entry]
    pairs: Iterable[Compared] = ()
    unread: Mapping[str, str] = field(default_factory=dict)


def render_bundle(bundle: Bundle) -> str:
    """Return one HTML page with everything but the runs' own reports; it needs no network.

    Raises:
        InputError: there is no run.
    """
    entries = bundle.entries
    require(len(entries) > 0, "got no runs; a bundle needs at least one")
    series = series_of(entries)
    once = [one.first for one in series if len(one.spots) == 1]
    texts = Texts()
    pairs = plain_pairs(bundle.pairs, texts)
    runs = [_filtered_by(one) for one in entries]
    script = files(__package__).joinpath(SCRIPT).read_text("utf-8")
    values = {
        "bundle": bundle,
        "entries": entries,
        "series": [one for one in series if len(one.spots) > 1],
        "once": [f"{one.title}, data {one.data}" for one in once],
        "width": WIDTH,
        "height": HEIGHT,
        "left": LEFT,
        "right": RIGHT,
        "choices": _choices(entries),
        "dates": sorted(f"{one.when:%Y-%m-%d}" for one in entries),
        "undated": sum(not one.recorded for one in entries),
        "private": sum(one.private for one in entries),
        "known": {"runs": runs, "pairs": pairs, "texts": list(texts.places)},
        "script": Markup(script),
        "digest": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "confidence": CONFIDENCE,
        "versions": versions(),
    }
    return str(render(__package__, "bundle.html.j2", values))


def _choices(entries: Sequence[Entry]) -> dict[str, dict[str, str]]:
    """Return the values of each filter, with their words."""
    points = [point for one in entries for point in one.points]
    levels = {one.level for one in points}
    urgent = sorted(levels, key=lambda one: LEVELS[one], reverse=True)
    return {
        "data": {name: name for name in sorted({one.data for one in points})},
        "question": {name: name for name in sorted({one.ask for one in points})},
        "defense": dict(sorted({(one.defense, one.under) for one in points})),
        "verdict": {name: LEVEL_WORDS[name] for name in urgent},
    }


def _filtered_by(one: Entry) -> dict[str, Any]:
    """Return what the filters and the comparison need of a run, as plain values."""
    return {
        "name": one.name,
        "typed": shlex.quote(one.name),
        "when": f"{one.when:%Y-%m-%d %H:%M}",
        "apart": one.apart,
        "points": [[each.data, each.ask, each.defense, each.level] for each in one.points],
    }
