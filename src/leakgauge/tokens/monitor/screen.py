"""What a monitor shows on the terminal: one live line, and each message once."""

import sys
import time

from rich.console import Console
from rich.live import Live
from rich.text import Text

MOST = 200
"""Messages that are remembered."""

SECONDS = 0.1
"""Between two drawings of the live line, at least."""


class Screen:
    """A line that changes in place, and messages above it, on the error stream.

    Args:
        live: whether to show the line; None shows it on a terminal.
    """

    def __init__(self, live: bool | None) -> None:
        self._console = Console(stderr=True, force_terminal=True if live else None)
        self._is_live = self._console.is_terminal if live is None else live
        self._line: Live | None = None
        self._drawn = 0.0
        self.said: list[str] = []

    def say(self, text: str, *, style: str = "yellow") -> None:
        """Print a message, unless it was printed before."""
        if text in self.said:
            return
        self.said = [*self.said[-MOST + 1 :], text]
        self._console.print(Text(f"leakgauge: {text}", style=style), soft_wrap=True)

    def show(self, text: str) -> None:
        """Show the line."""
        if not self._is_live or time.monotonic() - self._drawn < SECONDS:
            return
        self._drawn = time.monotonic()
        self._begun().update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)

    def stop(self, text: str) -> None:
        """Leave the line as it is, with its last text."""
        if self._line is not None:
            self._line.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)
            self._line.stop()
            self._line = None

    def _begun(self) -> Live:
        if self._line is None:
            self._line = Live(
                console=self._console,
                auto_refresh=False,
                redirect_stdout=sys.stdout.isatty(),  # else it would end on the error stream
                redirect_stderr=self._console.is_terminal,
            )
            self._line.start()
        return self._line
