"""Progress of searches: a bar each, with the loss; and a word where they are stopped."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from torch import Tensor

from leakgauge.cli.stopping import stoppable

Told = Callable[[int, Tensor], None]


@contextmanager
def search_bars(notices: Console) -> Iterator[Callable[[str, int], Told]]:
    """Gives a function that starts a bar, by its title and its iterations.

    Raises:
        Exit: the user stopped the searches.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[loss]}"))
    with Progress(*columns, TimeElapsedColumn(), console=notices) as bars:

        def start(title: str, iterations: int) -> Told:
            bar = bars.add_task(title, total=iterations, loss="")

            def told(at: int, loss: Tensor) -> None:
                bars.update(bar, completed=at + 1, loss=f"loss {float(loss.mean()):.4f}")

            return told

        with stoppable(notices, "a search cannot go on later: the command begins anew"):
            yield start
