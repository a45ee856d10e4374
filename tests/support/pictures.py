"""Smooth pictures, and a network that a search inverts within seconds."""

import torch
from torch import Tensor, nn

from leakgauge.core.rng import torch_stream


def smooth_pictures(n: int) -> Tensor:
    """Return pictures ``[n, 1, 12, 12]`` without fine detail, from -1 to 1."""
    coarse = torch.randn(n, 1, 3, 3, generator=torch_stream(0, "smooth"))
    return nn.functional.interpolate(coarse, size=(12, 12), mode="bicubic").clamp(-1, 1)


def picture_network() -> nn.Sequential:
    """Return two convolutions and a head of 5 classes: 160, 2,320 and 2,885 parameters."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),
            nn.Conv2d(16, 16, 3, stride=2, padding=1), nn.ReLU(),
            nn.Flatten(), nn.Linear(16 * 36, 5),
        )  # fmt: skip
