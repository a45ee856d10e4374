"""The LeNet of seven convolutions on which layers are compared by reconstruction."""

import torch
from torch import nn

from leakgauge.models.lenet_dlg import plain_stack


def lenet7(channels: int, classes: int, side: int, *, generator: torch.Generator) -> nn.Sequential:
    """Return seven 5 x 5 convolutions of 12 channels with sigmoids, and a linear head.

    The paper names the number of filters, their size and the 768 inputs of the head alone, which
    32 x 32 images give where two convolutions halve the image. The rest is chosen here: it is the
    ``lenet`` of DLG and iDLG, whose strides are 2, 2 and 1, with four more of stride 1 behind it.
    Those papers draw the weights from U(-0.5, 0.5), ``"wide-uniform"``; under PyTorch's scheme the
    gradient of the first layer is below 1e-5 of the last one's.

    Args:
        channels: channels of an image ``[channels, side, side]``.
        classes: outputs of the head (logits).
        side: height and width in pixels, at least 4.
        generator: draws the first weights by PyTorch's scheme.

    Raises:
        InputError: ``side`` is below 4.

    References:
        Mo et al., Layer-wise Characterization of Latent Information Leakage, 2021, section 9.2.

    >>> model = lenet7(3, 100, 32, generator=torch.Generator().manual_seed(0))
    >>> model[-1].in_features, list(model(torch.zeros(2, 3, 32, 32)).shape)
    (768, [2, 100])
    """
    strides = (2, 2, 1, 1, 1, 1, 1)
    return plain_stack(strides, channels, classes, side, bend=nn.Sigmoid, generator=generator)
