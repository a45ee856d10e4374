"""A small convolutional network that a search inverts within seconds."""

import torch
from torch import nn
from torch.nn import functional as F

from leakgauge.core.rng import torch_stream
from leakgauge.core.types import Task


def small_task() -> Task:
    """Return a task of 3 classes on records ``[1, 4, 4]``, in float64."""
    layers = nn.Sequential(nn.Conv2d(1, 4, 3, 1, 1), nn.Tanh(), nn.Flatten(), nn.Linear(64, 3))
    generator = torch_stream(0, "weights")
    with torch.no_grad():
        for value in layers.parameters():
            value.copy_(0.3 * torch.randn(value.shape, generator=generator))
    return Task(layers.double().eval(), F.cross_entropy)
