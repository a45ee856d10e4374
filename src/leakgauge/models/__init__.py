"""The networks of the papers, their first weights, and weights from files."""

from typing import TYPE_CHECKING

from leakgauge.core.lazy import attach

if TYPE_CHECKING:
    from leakgauge.models.conv_stacks import alexnet as alexnet
    from leakgauge.models.conv_stacks import alexnet_cifar as alexnet_cifar
    from leakgauge.models.conv_stacks import cnn as cnn
    from leakgauge.models.conv_stacks import cnn_ccs24 as cnn_ccs24
    from leakgauge.models.conv_stacks import slim as slim
    from leakgauge.models.conv_stacks import vgg11 as vgg11
    from leakgauge.models.dense_net import densenet as densenet
    from leakgauge.models.initialisation import SCHEMES as SCHEMES
    from leakgauge.models.initialisation import initialise as initialise
    from leakgauge.models.lenets import lenet as lenet
    from leakgauge.models.lenets import lenet7 as lenet7
    from leakgauge.models.named import NETS as NETS
    from leakgauge.models.named import build as build
    from leakgauge.models.perceptron import fcnet as fcnet
    from leakgauge.models.perceptron import mlp as mlp
    from leakgauge.models.resnet import ResNet as ResNet
    from leakgauge.models.resnet import resnet20 as resnet20
    from leakgauge.models.resnet import resnet50 as resnet50
    from leakgauge.models.resnet import resnet56 as resnet56
    from leakgauge.models.token_nets import alexnet_3fc as alexnet_3fc
    from leakgauge.models.token_nets import cnn_2 as cnn_2
    from leakgauge.models.token_nets import lenet_relu as lenet_relu
    from leakgauge.models.token_nets import mlp_4 as mlp_4
    from leakgauge.models.weights import load_weights as load_weights
    from leakgauge.models.weights import read_state as read_state
else:
    _PLACES = {
        "NETS": "named",
        "SCHEMES": "initialisation",
        "ResNet": "resnet",
        "alexnet": "conv_stacks",
        "alexnet_3fc": "token_nets",
        "alexnet_cifar": "conv_stacks",
        "build": "named",
        "cnn": "conv_stacks",
        "cnn_2": "token_nets",
        "cnn_ccs24": "conv_stacks",
        "densenet": "dense_net",
        "fcnet": "perceptron",
        "initialise": "initialisation",
        "lenet": "lenets",
        "lenet7": "lenets",
        "lenet_relu": "token_nets",
        "load_weights": "weights",
        "mlp": "perceptron",
        "mlp_4": "token_nets",
        "read_state": "weights",
        "resnet20": "resnet",
        "resnet50": "resnet",
        "resnet56": "resnet",
        "slim": "conv_stacks",
        "vgg11": "conv_stacks",
    }
    __getattr__, __dir__, __all__ = attach(
        __name__, {name: f"{__name__}.{place}" for name, place in _PLACES.items()}
    )
