"""Networks for images by name."""

from collections.abc import Mapping

import torch
from torch import nn

from leakgauge.core.checks import nearest, require
from leakgauge.models.cifar_alex_net import SMALL, alexnet_cifar
from leakgauge.models.conv_stacks import alexnet, cnn_ccs24, vgg11
from leakgauge.models.convolutional import cnn
from leakgauge.models.dense_net import densenet
from leakgauge.models.idlg_net import lenet7
from leakgauge.models.initialisation import initialise
from leakgauge.models.lenet_dlg import lenet
from leakgauge.models.perceptron import fcnet
from leakgauge.models.resnet import resnet20, resnet50
from leakgauge.models.slim_net import slim
from leakgauge.models.token_nets import alexnet_3fc, cnn_2, lenet_relu, mlp_4

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
    "alexnet-cifar-small": "the same with 32 to 96 channels",
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
    generator: torch.Generator,
) -> nn.Module:
    """Return a network in eval mode.

    Args:
        name: one of ``NETS``.
        channels: channels of an image ``[channels, side, side]``.
        classes: outputs of the head (logits).
        side: height and width in pixels.
        init: the scheme of the first weights, one of ``SCHEMES``.
        generator: draws the first weights.

    Raises:
        InputError: the name or the scheme is unknown, or the images are too small.

    >>> model = build("slim", channels=1, classes=2, side=8, generator=torch.Generator())
    >>> model.training, list(model(torch.zeros(3, 1, 8, 8)).shape)
    (False, [3, 2])
    """
    require(name in NETS, f"network {name!r} is not known{nearest(name, NETS)}")
    # A generator of its own: the weights of the next line are replaced by those of the scheme, and
    # so "pytorch" gives the weights of a direct call of the network's function.
    unused = torch.Generator(generator.device)
    model = _make(name, channels, classes, side, unused)
    return initialise(model, init, generator=generator).eval()


def _make(
    name: str, channels: int, classes: int, side: int, generator: torch.Generator
) -> nn.Module:
    if name == "resnet50":
        return resnet50(classes, channels, generator=generator)
    if name == "resnet20-4":
        # Geiping et al. 2020, who name this network first, use torchvision's blocks and shortcut.
        return resnet20(channels, classes, 64, shortcut="conv", generator=generator)
    if name.startswith("resnet20"):
        shortcut = "conv" if name == "resnet20-conv" else "pad"
        return resnet20(channels, classes, shortcut=shortcut, generator=generator)
    if name == "alexnet-cifar-small":
        return alexnet_cifar(channels, classes, side, widths=SMALL, generator=generator)
    if name == "fcnet":
        return fcnet(channels * side * side, classes, generator=generator)
    if name == "mlp-4":
        return mlp_4(channels * side * side, classes, generator=generator)
    network = {
        "lenet": lenet,
        "lenet7": lenet7,
        "slim": slim,
        "cnn": cnn,
        "cnn-ccs24": cnn_ccs24,
        "alexnet": alexnet,
        "vgg11": vgg11,
        "alexnet-cifar": alexnet_cifar,
        "densenet": densenet,
        "lenet-relu": lenet_relu,
        "alexnet-3fc": alexnet_3fc,
        "cnn-2": cnn_2,
    }[name]
    return network(channels, classes, side, generator=generator)
