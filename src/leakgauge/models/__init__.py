"""The networks of the papers, their first weights, and weights from files."""

from typing import TYPE_CHECKING

from leakgauge.core.lazy import attach, by_module

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
    _NAMES = {
        "conv_stacks": "alexnet alexnet_cifar cnn cnn_ccs24 slim vgg11",
        "dense_net": "densenet",
        "initialisation": "SCHEMES initialise",
        "lenets": "lenet lenet7",
        "named": "NETS build",
        "perceptron": "fcnet mlp",
        "resnet": "ResNet resnet20 resnet50 resnet56",
        "token_nets": "alexnet_3fc cnn_2 lenet_relu mlp_4",
        "weights": "load_weights read_state",
    }
    __getattr__, __dir__, __all__ = attach(__name__, by_module(_NAMES, __name__))
