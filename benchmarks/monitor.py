"""Measure the cost of a monitor for a training loop: a CIFAR CNN with and without one.

Run: ``python benchmarks/monitor.py [--threads N] [--repetitions 3]``. Two equal models train in
turn in one process, some steps each; one is watched: the cheap measure every 10 steps, and
estimates at 6 checkpoints in a separate process. Both see the same batches, and their weights must
be the same to the last bit. The ratio is that of CPU seconds of the loop's thread. It ends with an
error if the median over repetitions exceeds its limit. Wall time is printed, too; it includes
other processes, so it depends on the free cores.
"""

import argparse
import statistics
import sys
import time
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from leakgauge.models import build
from leakgauge.tokens.monitor.monitor import Monitor

LIMIT = 1.10
"""Largest ratio of the seconds of the loop's thread with a monitor to those without."""

BATCH, CLASSES, SIDE, RECORDS = 64, 10, 32, 4096
STEPS, TURN = 1200, 10
CHECKPOINTS = (250, 450, 650, 850, 1050, 1190)


@dataclass(eq=False)
class Training:
    """A CNN in training, with its seconds so far."""

    x: Tensor
    y: Tensor
    thread: float = 0.0
    wall: float = 0.0
    model: nn.Module = field(init=False)

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.model = build("cnn", channels=3, classes=CLASSES, side=SIDE, generator=generator)
        self.model.train()
        self.generator = torch.Generator().manual_seed(2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)

    def turn(self, steps: int) -> None:
        """Train for some steps."""
        thread, wall = time.thread_time(), time.perf_counter()
        for _ in range(steps):
            rows = torch.randint(RECORDS, (BATCH,), generator=self.generator)
            self.optimizer.zero_grad()
            functional.cross_entropy(self.model(self.x[rows]), self.y[rows]).backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
        self.thread += time.thread_time() - thread
        self.wall += time.perf_counter() - wall


def side_by_side() -> tuple[float, float, int]:
    """Return the ratios of thread and wall time, and the number of finished estimates."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(RECORDS, 3, SIDE, SIDE, generator=generator)
    y = torch.randint(CLASSES, (RECORDS,), generator=generator)
    plain, watched = Training(x, y), Training(x, y)
    monitor = Monitor(
        watched.model, every=10, checkpoints=CHECKPOINTS, waiting=6, wait=600, live=False
    )
    with monitor:
        for number in range(STEPS // TURN):
            # The order changes, because the second side finds the records in the cache.
            for one in (plain, watched) if number % 2 else (watched, plain):
                one.turn(TURN)
    pairs = zip(plain.model.parameters(), watched.model.parameters(), strict=True)
    if not all(torch.equal(one, other) for one, other in pairs):
        sys.exit("weights with a monitor differ from those without it")
    if monitor.notes:
        sys.exit("; ".join(monitor.notes))
    made = sum("information_nats" in one for one in monitor.records)
    print(
        f"  {1e3 * watched.thread / STEPS:.2f} against {1e3 * plain.thread / STEPS:.2f} ms "
        f"per step in the loop's thread, {1e3 * watched.wall / STEPS:.2f} against "
        f"{1e3 * plain.wall / STEPS:.2f} ms of wall time, {made} estimates, "
        f"{len(monitor.records) - made} cheap measures"
    )
    return watched.thread / plain.thread, watched.wall / plain.wall, made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    found = [side_by_side() for _ in range(options.repetitions)]
    thread = statistics.median(one for one, _, _ in found)
    wall = statistics.median(one for _, one, _ in found)
    print(
        f"a CNN with a monitor against the same without it, weights bit-identical: {thread:.3f} "
        f"times the seconds of the loop's thread ({min(one for one, _, _ in found):.3f} to "
        f"{max(one for one, _, _ in found):.3f}), limit {LIMIT:g}; {wall:.3f} times the wall time"
    )
    if thread > LIMIT or any(made < len(CHECKPOINTS) for _, _, made in found):
        sys.exit("the monitor costs more than its limit, or an estimate is missing")


if __name__ == "__main__":
    main()
