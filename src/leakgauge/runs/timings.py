"""``timings.json``: when the cells of a run were finished, how long they took, figures of time.

Equal runs differ in these alone, so they are kept outside of the cells. No other figure depends on
them: a file that is missing or damaged counts as empty.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pydantic

from leakgauge.core.files import write_text
from leakgauge.results.measurements import Measurement

TIMINGS_FILE = "timings.json"


@dataclass(frozen=True)
class Timing:
    """The times of one cell.

    Attributes:
        seconds: duration of the whole cell.
        figures: the measurements whose metric is a time.
        worker: process of a cluster that ran it; empty on this machine.
        finished: when it was finished, in UTC; None in a run of an earlier version.
    """

    seconds: float
    figures: tuple[Measurement, ...] = ()
    worker: str = ""
    finished: datetime | None = None


_TIMINGS = pydantic.TypeAdapter(dict[str, Timing])


def read_timings(folder: Path) -> dict[str, Timing]:
    """Return the times of each cell by its key, if they are known."""
    try:
        return _TIMINGS.validate_json((folder / TIMINGS_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return {}


def keep_timing(
    folder: Path, key: str, seconds: float, figures: Iterable[Measurement], worker: str = ""
) -> None:
    """Add the times of one cell, finished now, to the file; one process does this."""
    now = datetime.now(UTC).replace(microsecond=0)
    timings: Mapping[str, Timing] = {
        **read_timings(folder),
        key: Timing(round(seconds, 3), tuple(figures), worker, now),
    }
    write_text(folder / TIMINGS_FILE, _TIMINGS.dump_json(dict(timings)).decode())
