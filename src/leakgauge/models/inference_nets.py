"""The network for faces of the paper on inference privacy risks."""

import torch
from torch import nn

from leakgauge.core.checks import require
from leakgauge.models.initialisation import initialise

CHANNELS = (8, 16, 64)
HIDDEN = 16
HALVED = 2 ** len(CHANNELS)


def cnn_ccs24(
    channels: int, classes: int, side: int = 32, *, generator: torch.Generator
) -> nn.Sequential:
    """Return three 5 x 5 convolutions, each with a max-pooling, and two linear layers.

    The convolutions have 8, 16 and 64 channels; the hidden linear layer has 16 values.

    The paper states of its network for 32 x 32 colour faces and two classes only how many
    parameters it has: 45,922. The layers are ours: of one to five convolutions with a common
    kernel of 3 x 3 or 5 x 5 and a pooling behind each, channels that do not shrink, and up to two
    hidden linear layers that do not grow, where all widths are powers of two from 8 on, no other
    network has that number. Three classes (UTKFace) get the same body: 45,939 parameters.

    Args:
        channels: channels of an image ``[channels, side, side]``.
        classes: outputs of the head (logits).
        side: height and width in pixels, at least 8.
        generator: draws the first weights by PyTorch's scheme.

    Raises:
        InputError: ``side`` is below 8.

    References:
        Li et al., CCS 2024, section 5.1.3.

    >>> model = cnn_ccs24(3, 2, generator=torch.Generator().manual_seed(0))
    >>> sum(leaf.numel() for leaf in model.parameters())
    45922
    """
    require(side >= HALVED, f"side is {side}; expected at least {HALVED} pixels")
    layers: list[nn.Module] = []
    with torch.device("meta"):
        width = channels
        for wide in CHANNELS:
            layers += [nn.Conv2d(width, wide, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
            width = wide
        flat = width * (side // HALVED) ** 2
        layers += [nn.Flatten(), nn.Linear(flat, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, classes)]
    return initialise(nn.Sequential(*layers), generator=generator)
