"""Records that were rebuilt where nobody knows the truth, and what is kept of them; private."""

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from leakgauge.inference.run import STATIC, versions
from leakgauge.inversion.run.kept import SHOWN
from leakgauge.inversion.run.spec import QUESTION
from leakgauge.inversion.search.settings import Settings
from leakgauge.results.measurements import ACCUMULATED, PICTURES_FILE, Estimate, Measurement

REBUILT_FILE = "rebuilt.safetensors"


@dataclass(frozen=True, eq=False)
class Received:
    """What was made of one update.

    Attributes:
        x: records ``[B, ...]``, in units of the model's input; their order means nothing.
        labels: ``[B]`` int64, as given or as found.
        loss: objective and priors of ``x``; without a truth it is all that can be said.
        curve: points (iteration, loss).
        low: lowest values of a record, broadcast to it; high, the highest: of public records.
        high: see ``low``.
        warnings: why the update may not mean what the attack takes it for.
        seconds_per_iteration: of the search.
    """

    x: Tensor
    labels: Tensor
    loss: float
    curve: tuple[tuple[float, float], ...]
    low: Tensor
    high: Tensor
    warnings: tuple[str, ...]
    seconds_per_iteration: float

    @property
    def pictures(self) -> Tensor | None:
        """Uint8 ``[B, c, h, w]``, the box as 0 to 255; None where the records are no pictures."""
        if not are_pictures(self.x):
            return None
        width = torch.where(self.high > self.low, self.high - self.low, 1.0)
        scaled = 255 * (self.x - self.low) / width
        return scaled.round().clamp(0, 255).to(torch.uint8)


def are_pictures(x: Tensor) -> bool:
    """Whether ``x [n, ...]`` holds pictures ``[c, h, w]``, gray or in colour.

    >>> are_pictures(torch.zeros(5, 3, 8, 8)), are_pictures(torch.zeros(5, 12))
    (True, False)
    """
    return x.dim() == 4 and x.shape[1] in (1, 3) and min(x.shape[2:]) >= 2


def received_record(
    found: Received, *, name: str, method: str, labels: str, settings: Settings, seed: int
) -> Measurement:
    """The one figure that there is without a truth: the loss.

    Args:
        found: what was made of the update.
        name: of the update.
        method: the attack's name.
        labels: how they were come by.
        settings: of the attack.
        seed: of the run.
    """
    return Measurement(
        question="inversion",
        game=QUESTION,
        dataset=name,
        label="",
        secret="records",
        defense="none",
        knowledge=STATIC,
        adversary=method,
        metric="loss",
        round=ACCUMULATED,
        seed=seed,
        estimate=Estimate(found.loss, found.loss, found.loss, len(found.x)),
        chance=0.0,
        curve=found.curve,
        details={"settings": repr(settings), "labels": labels},
        versions=versions(),
    )


def keep_received(folder: Path, found: Received) -> None:
    """Write ``pictures.safetensors`` (as ``keep_evidence``, without a truth), or the records
    ``x [B, ...]`` and ``labels [B]`` to ``rebuilt.safetensors`` where they are no pictures.
    """
    pictures = found.pictures
    if pictures is not None:
        save_file({"0": pictures[:SHOWN].cpu().contiguous()}, folder / PICTURES_FILE)
        return
    parts = {"x": found.x.cpu().contiguous(), "labels": found.labels.cpu().contiguous()}
    save_file(parts, folder / REBUILT_FILE)
