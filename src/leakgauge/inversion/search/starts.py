"""Draws the starts of the search."""

import torch
from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.core.rng import torch_stream
from leakgauge.inversion.search.settings import Settings


def draw_starts(
    settings: Settings,
    shape: tuple[int, ...],
    *,
    targets: int,
    seed: int,
    like: Tensor,
    first_target: int = 0,
    start: Tensor | None = None,
) -> Tensor:
    """Return records ``[T, R, *shape]``, one stream of randomness for each target and restart.

    Args:
        settings: number of restarts and the kind of noise.
        shape: of a target's records, ``(B, *record)``.
        targets: T.
        seed: with the target's number and the restart's it gives the stream.
        like: gives type and device.
        first_target: number of the first of the T targets.
        start: ``[T, *shape]``, where the first restart begins; None draws it.

    Raises:
        InputError: ``start`` has another shape.
    """
    rows = [
        _noise(settings.start, shape, seed, "start", first_target + target, restart)
        for target in range(targets)
        for restart in range(settings.restarts)
    ]
    drawn = torch.stack(rows).view(targets, settings.restarts, *shape).to(like)
    if start is not None:
        wanted = [targets, *shape]
        require(list(start.shape) == wanted, f"start is {list(start.shape)}; expected {wanted}")
        drawn[:, 0] = start.to(drawn)
    return drawn


def draw_scores(start: Tensor, classes: int, *, seed: int, first_target: int = 0) -> Tensor:
    """Return scores of unknown labels ``[T * R, B, classes]``: normal noise, as DLG begins."""
    targets, restarts, count = start.shape[:3]
    rows = [
        _noise("normal", (count, classes), seed, "labels", first_target + target, restart)
        for target in range(targets)
        for restart in range(restarts)
    ]
    return torch.stack(rows).to(start)


def _noise(kind: str, shape: tuple[int, ...], seed: int, *names: str | int) -> Tensor:
    # Drawn on the CPU in float64: the same start whatever the device and the type.
    generator = torch_stream(seed, *names)
    if kind == "zeros":
        return torch.zeros(shape, dtype=torch.float64)
    if kind == "uniform":
        return 2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1
    return torch.randn(shape, generator=generator, dtype=torch.float64)
