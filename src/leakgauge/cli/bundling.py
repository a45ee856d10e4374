"""Makes a bundle with progress on the terminal, and says what is not in it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from leakgauge.catalog import questions
from leakgauge.cli.progress import bars

if TYPE_CHECKING:
    from leakgauge.runs.bundle.writing import WrittenBundle


def bundled(runs: Sequence[Path], out: Path) -> "WrittenBundle":
    """Write a bundle; print the folders that are not in it, one line each.

    Raises:
        InputError: a folder holds no run, no run can be read, or ``out`` cannot be used.
    """
    from leakgauge.runs.bundle.writing import write_bundle

    notices = Console(stderr=True)
    with bars(notices) as progress:
        written = write_bundle(runs, out, questions(), progress=progress)
    for name, why in written.unread.items():
        notices.print(Text(f"not shown: {name}: {why}", style="yellow"), soft_wrap=True)
    if written.private:
        line = f"warning: reports with private records: {written.private} of {written.runs}"
        notices.print(Text(line, style="yellow"), soft_wrap=True)
    return written
