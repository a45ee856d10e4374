"""Reports the iterations of a search to the user."""

from torch import Tensor

from leakgauge.inversion.search.targets import Progress as SearchProgress
from leakgauge.runs.question import Progress


def search_progress(progress: Progress, title: str, iterations: int) -> SearchProgress:
    """Return what a search calls at each iteration.

    Args:
        progress: of the question.
        title: of the attempt.
        iterations: of its search.
    """

    def report(at: int, loss: Tensor) -> None:
        progress.step(title, at + 1, iterations, f"loss {float(loss.mean()):.4f}")

    return report
