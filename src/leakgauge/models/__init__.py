"""The networks of the papers, their first weights, and weights from files."""

from leakgauge.models.alexnet import alexnet
from leakgauge.models.convolutional import cnn
from leakgauge.models.densenet import densenet
from leakgauge.models.initialisation import SCHEMES, initialise
from leakgauge.models.lenet_dlg import lenet
from leakgauge.models.named import NETS, build
from leakgauge.models.perceptron import mlp
from leakgauge.models.resnet import ResNet, resnet20, resnet50
from leakgauge.models.slim_net import slim
from leakgauge.models.weights import load_weights, read_state

__all__ = [
    "NETS",
    "SCHEMES",
    "ResNet",
    "alexnet",
    "build",
    "cnn",
    "densenet",
    "initialise",
    "lenet",
    "load_weights",
    "mlp",
    "read_state",
    "resnet20",
    "resnet50",
    "slim",
]
