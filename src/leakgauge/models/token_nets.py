"""The networks of "Real-Time Privacy Risk Measurement with Privacy Tokens".

The paper names their layers, but only one width: the 768 outputs of the LeNet's convolutions. The
widths, kernels and places of the poolings of the other three are ours. The arguments are those of
``models.conv_stacks``.
"""

import torch
from torch import Generator, nn
from torch.nn import Sequential

from leakgauge.core.checks import require
from leakgauge.models.initialisation import initialise
from leakgauge.models.lenets import plain_stack
from leakgauge.models.perceptron import linear_layers, mlp

ALEX_CHANNELS = (32, 64, 128, 128, 128)
ALEX_POOLED = (0, 1, 4)
ALEX_HEAD = (256, 128)
CNN_CHANNELS = (16, 32)
CNN_HEAD = (128,)
MLP_HIDDEN = (256, 128, 64)


def lenet_relu(channels: int, classes: int, side: int = 32, *, generator: Generator) -> Sequential:
    """Return the LeNet of DLG with ReLUs instead of sigmoids.

    Its convolutions give 768 values for 32 x 32 images. It needs 4 pixels or more. The first
    weights follow PyTorch's scheme; DLG draws them from U(-0.5, 0.5).

    >>> model = lenet_relu(3, 10, generator=torch.Generator().manual_seed(0))
    >>> list(model[:7](torch.zeros(2, 3, 32, 32)).shape)
    [2, 768]
    """
    return plain_stack((2, 2, 1), channels, classes, side, bend=nn.ReLU, generator=generator)


def alexnet_3fc(channels: int, classes: int, side: int = 32, *, generator: Generator) -> Sequential:
    """Return five 3 x 3 convolutions, an adaptive average pooling and three linear layers.

    The convolutions have 32, 64, 128, 128 and 128 channels, and a max-pooling behind the first,
    the second and the last. The adaptive pooling leaves 2 x 2 places. It needs 16 pixels or more.

    >>> model = alexnet_3fc(3, 10, generator=torch.Generator().manual_seed(0))
    >>> list(model(torch.zeros(2, 3, 32, 32)).shape)
    [2, 10]
    """
    require(side >= 16, f"side is {side}; expected at least 16 pixels")
    layers: list[nn.Module] = []
    with torch.device("meta"):
        width = channels
        for number, wide in enumerate(ALEX_CHANNELS):
            layers += [nn.Conv2d(width, wide, 3, padding=1), nn.ReLU()]
            layers += [nn.MaxPool2d(2)] if number in ALEX_POOLED else []
            width = wide
        layers += [nn.AdaptiveAvgPool2d(2), nn.Flatten()]
        layers += linear_layers(4 * width, classes, ALEX_HEAD)
    return initialise(Sequential(*layers), generator=generator)


def cnn_2(channels: int, classes: int, side: int = 32, *, generator: Generator) -> Sequential:
    """Return two 3 x 3 convolutions, each with a max-pooling, and two linear layers.

    The convolutions have 16 and 32 channels; the embedding has 128 values. It needs 4 pixels or
    more.

    >>> model = cnn_2(3, 2, generator=torch.Generator().manual_seed(0))
    >>> list(model(torch.zeros(2, 3, 32, 32)).shape)
    [2, 2]
    """
    require(side >= 4, f"side is {side}; expected at least 4 pixels")
    layers: list[nn.Module] = []
    with torch.device("meta"):
        width = channels
        for wide in CNN_CHANNELS:
            layers += [nn.Conv2d(width, wide, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
            width = wide
        layers += [nn.Flatten(), *linear_layers(width * (side // 4) ** 2, classes, CNN_HEAD)]
    return initialise(Sequential(*layers), generator=generator)


def mlp_4(inputs: int, classes: int, *, generator: Generator) -> Sequential:
    """Return four linear layers with ReLUs between them, for images.

    The hidden layers have 256, 128 and 64 values.

    Args:
        inputs: number of values of a record, which may have any shape.
        classes: outputs of the head (logits).
        generator: draws the first weights by PyTorch's scheme.

    >>> model = mlp_4(3 * 8 * 8, 2, generator=torch.Generator().manual_seed(0))
    >>> list(model(torch.zeros(2, 3, 8, 8)).shape)
    [2, 2]
    """
    return Sequential(nn.Flatten(), *mlp(inputs, classes, MLP_HIDDEN, generator=generator))
