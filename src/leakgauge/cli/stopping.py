"""Exit codes and messages for interrupted or refused commands."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.text import Text

INTERRUPTED = 130
"""Exit code of a command that was stopped from the keyboard."""

REFUSED = 2
"""Exit code of a command whose input is refused, in whole or in part."""

DIFFERS = 3
"""Exit code of a check that ran and failed."""


EXIT_CODES = (
    "Exit codes: 0 done; 3 a rule of --fail-if or a promise of differential privacy fails; "
    "2 input is refused, or a rule could not be evaluated; 130 stopped."
)
"""Last lines of the help of a command that has ``--fail-if``."""


@contextmanager
def stoppable(notices: Console, hint: str) -> Iterator[None]:
    """Print "stopped; ``hint``" in one line if the user stops the block.

    Raises:
        Exit: the user stopped it.
    """
    try:
        yield
    except KeyboardInterrupt:
        notices.print(Text(f"stopped; {hint}"), soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from None
