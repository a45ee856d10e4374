"""Smooth pictures, and a network that a search inverts within seconds."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from leakgauge.core.rng import torch_stream
from leakgauge.core.types import Grads, Task
from leakgauge.gradients.gradients import params_of
from leakgauge.inversion.double_backward.gradients import differentiable_gradients
from leakgauge.inversion.observed import Reconstruction
from leakgauge.inversion.search.engine import reconstruct
from leakgauge.inversion.search.settings import SearchSettings

LABELS = torch.arange(4)[:, None]
"""Labels of four pictures, one in each update."""


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


def gradients_of_pictures(truth: Tensor) -> Grads:
    """Return the gradients of four pictures, leaf ``[4, *p]``."""
    task = Task(picture_network(), cross_entropy)
    found = differentiable_gradients(task, params_of(task.model), truth[:, None], LABELS)
    return {name: leaf.detach() for name, leaf in found.items()}


def searched_pictures(sent: Grads, settings: SearchSettings) -> Reconstruction:
    """Return what a search finds behind the gradients of four pictures."""
    task = Task(picture_network(), cross_entropy)
    limits = {"low": torch.tensor(-1.0), "high": torch.tensor(1.0)}
    shape = (1, 1, 12, 12)
    params = params_of(task.model)
    return reconstruct(task, params, sent, settings, shape=shape, labels=LABELS, seed=0, **limits)


def error_of(settings: SearchSettings, sent: Grads, truth: Tensor) -> float:
    """Return the mean squared error of the pictures that a search rebuilds."""
    return float((searched_pictures(sent, settings).x[:, 0] - truth).square().mean())
