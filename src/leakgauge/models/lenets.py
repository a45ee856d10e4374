"""LeNets of 5 x 5 convolutions with sigmoids: those of DLG and of Mo et al.

The arguments are those of ``plain_stack``; the first weights follow PyTorch's scheme.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Generator, nn
from torch.nn import Sequential

from leakgauge.core.checks import require
from leakgauge.models.initialisation import initialise

_WIDTH = 12


def lenet(channels: int, classes: int, side: int, *, generator: Generator) -> Sequential:
    """Return three 5 x 5 convolutions of 12 channels with sigmoids, and a linear head.

    The strides are 2, 2 and 1. The papers draw its weights from U(-0.5, 0.5):
    ``initialise(model, "wide-uniform", generator=...)``.

    References:
        Zhu et al., "Deep Leakage from Gradients", NeurIPS 2019, and its published code.

    >>> model = lenet(1, 10, 28, generator=torch.Generator().manual_seed(0))
    >>> list(model(torch.zeros(3, 1, 28, 28)).shape)
    [3, 10]
    """
    return plain_stack((2, 2, 1), channels, classes, side, bend=nn.Sigmoid, generator=generator)


def plain_stack(
    strides: Sequence[int],
    channels: int,
    classes: int,
    side: int,
    *,
    bend: Callable[[], nn.Module],
    generator: Generator,
) -> Sequential:
    """Return 5 x 5 convolutions of 12 channels, one for each stride, and a linear head.

    Args:
        strides: strides of the convolutions.
        channels: channels of an image.
        classes: outputs of the head (logits).
        side: height and width in pixels, at least 4.
        bend: makes the activation behind each convolution.
        generator: draws the first weights.

    Raises:
        InputError: ``side`` is below 4.

    >>> one = torch.Generator().manual_seed(0)
    >>> stack = plain_stack((2, 1), 3, 10, 32, bend=nn.Sigmoid, generator=one)
    >>> [type(layer).__name__ for layer in stack]
    ['Conv2d', 'Sigmoid', 'Conv2d', 'Sigmoid', 'Flatten', 'Linear']
    """
    require(side >= 4, f"side is {side}; expected at least 4 pixels")
    layers: list[nn.Module] = []
    with torch.device("meta"):
        for width_in, stride in zip((channels, *[_WIDTH] * len(strides)), strides, strict=False):
            layers += [nn.Conv2d(width_in, _WIDTH, 5, stride, padding=2), bend()]
            side = (side - 1) // stride + 1
        layers += [nn.Flatten(), nn.Linear(_WIDTH * side * side, classes)]
    return initialise(Sequential(*layers), generator=generator)


def lenet7(channels: int, classes: int, side: int, *, generator: Generator) -> Sequential:
    """Return seven 5 x 5 convolutions of 12 channels with sigmoids, and a linear head.

    The paper names only the number of filters, their size and the 768 inputs of the head, which
    32 x 32 images give if two convolutions halve the image. The rest is our choice: the ``lenet``
    of DLG and iDLG, with strides 2, 2 and 1, and four more convolutions of stride 1 behind it.
    Those papers draw the weights from U(-0.5, 0.5), ``"wide-uniform"``; under PyTorch's scheme the
    gradient of the first layer is below 1e-5 of the last one's.

    References:
        Mo et al., Layer-wise Characterization of Latent Information Leakage, 2021, section 9.2.

    >>> model = lenet7(3, 100, 32, generator=torch.Generator().manual_seed(0))
    >>> model[-1].in_features, list(model(torch.zeros(2, 3, 32, 32)).shape)
    (768, [2, 100])
    """
    strides = (2, 2, 1, 1, 1, 1, 1)
    return plain_stack(strides, channels, classes, side, bend=nn.Sigmoid, generator=generator)
