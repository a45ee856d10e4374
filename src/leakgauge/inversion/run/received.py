"""Records rebuilt from the update of a real client, whose true records are unknown here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import save_file
from torch import Tensor

from leakgauge.core.knowledge import STATIC
from leakgauge.core.versions import versions
from leakgauge.inversion.metrics.table import LOSS
from leakgauge.inversion.run.records import MOST_RECORDS
from leakgauge.inversion.search.settings import Settings
from leakgauge.inversion.words import NAME, SMALL_SIDE
from leakgauge.results.measurements import ACCUMULATED, PICTURES_FILE, Estimate, Measurement
from leakgauge.runs.spec import NONE

if TYPE_CHECKING:
    from leakgauge.inversion.spec import InversionSpec

REBUILT_FILE = "rebuilt.safetensors"


@dataclass(frozen=True, eq=False)
class Received:
    """Records rebuilt from one update.

    Attributes:
        x: records ``[B, ...]``, in units of the model's input; their order means nothing.
        labels: ``[B]`` int64, as given or as inferred.
        loss: objective and priors of ``x``; without true records nothing else can be said.
        curve: points (iteration, loss).
        low: lowest values of public records, broadcast to a record.
        high: highest values of public records, broadcast to a record.
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
        """Uint8 ``[B, c, h, w]``, from ``low`` to ``high``; None where records are no pictures."""
        if not are_pictures(self.x):
            return None
        width = torch.where(self.high > self.low, self.high - self.low, 1.0)
        scaled = 255 * (self.x - self.low) / width
        return scaled.round().clamp(0, 255).to(torch.uint8)


def are_pictures(x: Tensor) -> bool:
    """Return whether ``x [n, ...]`` holds pictures ``[c, h, w]``, gray or in colour.

    >>> are_pictures(torch.zeros(5, 3, 8, 8)), are_pictures(torch.zeros(5, 12))
    (True, False)
    """
    return x.dim() == 4 and x.shape[1] in (1, 3) and min(x.shape[2:]) >= 2


def are_large(x: Tensor) -> bool:
    """Return whether ``x [n, ...]`` holds pictures that a method's settings take for large ones.

    >>> are_large(torch.zeros(1, 3, 65, 8)), are_large(torch.zeros(1, 3, 64, 8))
    (True, False)
    """
    return are_pictures(x) and max(x.shape[2:]) > SMALL_SIDE


def measurement_of(
    received: Received, spec: InversionSpec, settings: Settings, *, name: str
) -> Measurement:
    """Return the one figure that exists without true records: the loss.

    Args:
        received: from ``PreparedUpdate.rebuild``.
        spec: the settings of the question.
        settings: those of the search.
        name: of the update.
    """
    loss = received.loss
    return Measurement(
        question=NAME,
        game=NAME,
        dataset=name,
        label="",
        secret="records",
        defense=NONE,
        knowledge=STATIC,
        adversary=spec.method[0],
        metric=LOSS,
        round=ACCUMULATED,
        seed=spec.seed,
        estimate=Estimate(loss, loss, loss, len(received.x)),
        chance=0.0,
        curve=received.curve,
        details={"settings": repr(settings), "labels": spec.labels},
        versions=versions(),
        seconds=received.seconds_per_iteration * settings.iterations,
    )


def keep_received(folder: Path, received: Received) -> None:
    """Write pictures to ``pictures.safetensors`` under the name ``"0"``.

    Other records go to ``rebuilt.safetensors`` as ``x [B, ...]`` and ``labels [B]``.
    """
    pictures = received.pictures
    if pictures is not None:
        kept = pictures[:MOST_RECORDS].cpu().contiguous()
        save_file({"0": kept}, folder / PICTURES_FILE)
        return
    parts = {"x": received.x.cpu().contiguous(), "labels": received.labels.cpu().contiguous()}
    save_file(parts, folder / REBUILT_FILE)
