"""Small training loops for monitors."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from leakgauge.tokens import CriticSettings

QUICK = CriticSettings(iterations=5, check_every=5, evaluated=64)
"""Settings of fast estimates without information."""


class AtOnce:
    """An executor that runs each job at once, in this process; starting one takes seconds."""

    def submit(self, job: Callable[[], Any]) -> Future[Any]:
        ended: Future[Any] = Future()
        ended.set_result(job())
        return ended

    def shutdown(self, **given: Any) -> None:
        return


def network(seed: int = 0, *, width: int = 6, classes: int = 3) -> nn.Sequential:
    """Return a convolution and two linear layers for images ``[2, 5, 5]``."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(2, 3, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(75, width),
            nn.Tanh(),
            nn.Linear(width, classes),
        )


def batches(steps: int, *, size: int = 8, seed: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
    """Return batches of random images and labels."""
    rng = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        yield torch.randn(size, 2, 5, 5, generator=rng), torch.randint(3, (size,), generator=rng)


def train(
    model: nn.Module,
    steps: int,
    *,
    size: int = 8,
    lr: float = 0.1,
    each: Callable[[int, Tensor, Tensor], None] | None = None,
) -> None:
    """Train in a plain loop; call ``each`` after every step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for number, (x, y) in enumerate(batches(steps, size=size)):
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        if each is not None:
            each(number, x, y)
