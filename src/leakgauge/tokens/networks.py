"""What the paper watches of its networks; imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Watched:
    """The names of what is watched of a network.

    Attributes:
        features: the module whose output is the data feature.
        layers: the layers whose gradients are watched.
    """

    features: str
    layers: tuple[str, ...]


WATCHED: Mapping[str, Watched] = {
    # 768 values of the flattened convolutions; the three convolutions
    "lenet-relu": Watched("6", ("0", "2", "4")),
    # the adaptive average pooling; the last three convolutions
    "alexnet-3fc": Watched("13", ("6", "8", "10")),
    # the first linear layer, without its ReLU, on which the text is silent; the convolutions
    "cnn-2": Watched("7", ("0", "3")),
    # the second linear layer, likewise; all layers
    "mlp-4": Watched("3", ("1", "3", "5", "7")),
}
"""By name of the network (section 4.1 of the paper)."""
