"""How a command ends that does not come to its end, and what is said then."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.text import Text

INTERRUPTED = 130
"""The exit code of a command that was stopped from the keyboard."""

REFUSED = 2
"""The exit code of a command that was given what it cannot play, in whole or in part."""


@contextmanager
def stoppable(notices: Console, hint: str) -> Iterator[None]:
    """Says "stopped; ``hint``" in one line where the user stops what is within.

    Raises:
        Exit: the user did.
    """
    try:
        yield
    except KeyboardInterrupt:
        notices.print(Text(f"stopped; {hint}"), soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from None
