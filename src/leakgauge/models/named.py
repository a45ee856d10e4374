"""Networks for images by name; importing this module loads no torch."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from leakgauge.core.checks import require_known

if TYPE_CHECKING:
    import torch
    from torch import nn

SCHEMES = ("pytorch", "he", "he-fan-out", "xavier", "wide-uniform")
"""Names of the schemes for first weights, which ``models.initialisation`` draws."""

NETS: Mapping[str, str] = {
    "lenet7": "LeNet of Mo et al.: seven 5 x 5 convolutions of 12 channels, sigmoid",
    "lenet": "LeNet of DLG: three 5 x 5 convolutions of 12 channels, sigmoid",
    "slim": "three 3 x 3 convolutions of 48 channels, ReLU, no normalisation",
    "cnn": "three 3 x 3 convolutions of 16, 32 and 32 channels that each halve the image, ReLU",
    "cnn-ccs24": "CNN of as many parameters as the paper on inference states: three 5 x 5 "
    "convolutions of 8 to 64 channels, two linear layers",
    "resnet20": "ResNet20 of width 16, shortcuts padded with zeros",
    "resnet20-conv": "ResNet20 of width 16, shortcuts by 1 x 1 convolutions",
    "resnet20-4": "ResNet20 of width 64, shortcuts by 1 x 1 convolutions",
    "resnet50": "ResNet50 in torchvision's layout, for 224 x 224",
    "alexnet": "AlexNet of Mo et al.: three convolutions of 16 to 64 channels, two linear layers",
    "vgg11": "VGG11 of Mo et al.: eight convolutions of 16 to 64 channels, three linear layers",
    "fcnet": "FCNet of Mo et al.: nine linear layers of width 32",
    "alexnet-cifar": "AlexNet of five convolutions, in the variant of Nasr et al. for 32 x 32",
    "alexnet-cifar-small": "AlexNet of Nasr et al. with 32 to 96 channels",
    "densenet": "DenseNet-BC of depth 100 and growth 12",
    "lenet-relu": "LeNet of DLG with ReLUs",
    "alexnet-3fc": "AlexNet of the privacy-token paper: five convolutions of 32 to 128 channels, "
    "an adaptive pooling, three linear layers",
    "cnn-2": "CNN of the privacy-token paper: two convolutions of 16 and 32 channels, two linear "
    "layers",
    "mlp-4": "MLP of the privacy-token paper: four linear layers",
}
"""A description of each network that ``build`` knows."""


def build(
    name: str,
    *,
    channels: int,
    classes: int,
    side: int,
    init: str = "pytorch",
    generator: "torch.Generator",
) -> "nn.Module":
    """Return a network in eval mode.

    Args:
        name: one of ``NETS``.
        channels: channels of an image ``[channels, side, side]``.
        classes: outputs of the head (logits).
        side: height and width in pixels.
        init: scheme of the first weights, one of ``SCHEMES``.
        generator: draws the first weights.

    Raises:
        InputError: the name or the scheme is unknown, or the images are too small.

    >>> import torch
    >>> model = build("slim", channels=1, classes=2, side=8, generator=torch.Generator())
    >>> model.training, list(model(torch.zeros(3, 1, 8, 8)).shape)
    (False, [3, 2])
    """
    import torch

    from leakgauge.models.initialisation import initialise

    require_known(name, NETS, f"network {name!r} is not known")
    # The next line's weights are replaced by those of the scheme. With a separate generator,
    # "pytorch" gives the weights of a direct call of the network's function.
    model = _make(name, channels, classes, side, torch.Generator(generator.device))
    return initialise(model, init, generator=generator).eval()


def _make(
    name: str, channels: int, classes: int, side: int, generator: "torch.Generator"
) -> "nn.Module":
    from leakgauge.models import conv_stacks, lenets, perceptron, resnet, token_nets
    from leakgauge.models.dense_net import densenet

    if name == "resnet50":
        return resnet.resnet50(classes, channels, generator=generator)
    if name.startswith("resnet20"):
        # Geiping et al. 2020, who name resnet20-4 first, use torchvision's blocks and shortcut.
        width = 64 if name == "resnet20-4" else 16
        shortcut = "pad" if name == "resnet20" else "conv"
        return resnet.resnet20(channels, classes, width, shortcut=shortcut, generator=generator)
    if name in ("fcnet", "mlp-4"):
        flat = perceptron.fcnet if name == "fcnet" else token_nets.mlp_4
        return flat(channels * side * side, classes, generator=generator)
    networks: dict[str, Callable[..., nn.Module]] = {
        "lenet": lenets.lenet,
        "lenet7": lenets.lenet7,
        "slim": conv_stacks.slim,
        "cnn": conv_stacks.cnn,
        "cnn-ccs24": conv_stacks.cnn_ccs24,
        "alexnet": conv_stacks.alexnet,
        "vgg11": conv_stacks.vgg11,
        "alexnet-cifar": conv_stacks.alexnet_cifar,
        "alexnet-cifar-small": partial(conv_stacks.alexnet_cifar, widths=conv_stacks.SMALL),
        "densenet": densenet,
        "lenet-relu": token_nets.lenet_relu,
        "alexnet-3fc": token_nets.alexnet_3fc,
        "cnn-2": token_nets.cnn_2,
    }
    return networks[name](channels, classes, side, generator=generator)
