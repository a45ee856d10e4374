"""Progress of a run on the terminal: a bar for each part, notes and warnings as they come."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text


class Bars:
    """Progress of a question: a bar for each of its parts."""

    def __init__(self, bars: Progress, console: Console) -> None:
        self._bars = bars
        self._console = console
        self._ids: dict[str, int] = {}
        self._said: set[str] = set()

    def step(self, what: str, done: int, of: int, note: str = "") -> None:
        """Move the bar of ``what``; the first call makes it."""
        self._bars.start()  # not before: a refusal is one line
        if what not in self._ids:
            self._ids[what] = self._bars.add_task(what, total=of, note=note)
        identifier = self._bars.task_ids[self._ids[what]]
        self._bars.update(identifier, completed=done, total=of, note=note or f"{done}/{of}")

    def note(self, text: str) -> None:
        """Print a note once."""
        self._say(f"note: {text}", "")

    def warn(self, text: str) -> None:
        """Print a warning once."""
        self._say(f"warning: {text}", "yellow")

    def early(self, make: Callable[[], str]) -> None:
        """Print a figure before the results."""
        self._say(make(), "")

    def _say(self, text: str, style: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._console.print(Text(text, style=style), soft_wrap=True)


@contextmanager
def bars(console: Console) -> Iterator[Bars]:
    """Show progress on ``console`` while the block runs."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"))
    shown = Progress(*columns, TimeElapsedColumn(), console=console)
    try:
        yield Bars(shown, console)
    finally:
        if shown.live.is_started:
            shown.stop()
