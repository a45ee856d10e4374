"""The attack network of Nasr et al., Figure 1 and Table XIV."""

import itertools
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from leakgauge.membership.adversaries.inputs import Components
from leakgauge.models.initialisation import initialise

COMPONENT = (128, 64)
ENCODER = (256, 128, 64, 1)
"""Widths of Table XIV."""

PAPER_DEVIATION = 0.01
"""Standard deviation of initial weights in the paper; biases are 0 (section III-E)."""


class Dropout(nn.Module):
    """Dropout with masks from its own generator."""

    def __init__(self, rate: float, generator: torch.Generator) -> None:
        super().__init__()
        self.rate = rate
        self.generator = generator

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` with a share of its entries 0 while training, the others scaled up."""
        if not self.training or self.rate == 0:
            return x
        kept = torch.rand(x.shape, generator=self.generator, device=x.device) >= self.rate
        return x * kept / (1 - self.rate)


class GradientComponent(nn.Module):
    """Kernels as long as a row of a layer's gradient, then fully connected layers.

    A linear layer's gradient is ``[out, in]``, and a kernel spans the inputs of one output. The
    paper does not define this for a convolution: its gradient is taken as ``[out, in * k * k]``,
    and a kernel spans a row again. Snapshots share the kernels.

    Args:
        like: example of the network's inputs.
        layer: name of the layer.
        kernels: number of kernels.
        dropout: a dropout layer.
        widths: widths of the fully connected layers.
    """

    def __init__(
        self,
        like: Components,
        layer: str,
        kernels: int,
        dropout: Dropout,
        widths: Sequence[int] = COMPONENT,
    ) -> None:
        super().__init__()
        gradient = like.gradients[layer]
        out, width = gradient.each[0].out, gradient.each[0].in_features
        snapshots = gradient.norms.shape[1]
        beside = 0 if gradient.log_norms is None else snapshots
        self.kernels = nn.Linear(width, kernels)
        self.body = _layers((snapshots * out * kernels + beside, *widths), dropout)
        self.dropout = dropout

    def forward(self, components: Components, layer: str) -> Tensor:
        """Return the features of records ``[n, d]``, d the last of the widths."""
        gradient = components.gradients[layer]
        seen = []
        for number, one in enumerate(gradient.each):
            scaled = one.project(self.kernels.weight) / gradient.norms[:, number, None, None]
            seen.append(self.dropout(functional.relu(scaled + self.kernels.bias)).flatten(1))
        if gradient.log_norms is not None:
            seen.append(gradient.log_norms)
        features: Tensor = self.body(torch.cat(seen, dim=1))
        return features


class AttackNetwork(nn.Module):
    """One network for each component, and an encoder of all of them.

    The last layer of Table XIV's encoder has no ReLU and no dropout here: its output is the log
    odds of membership; the paper's score is their sigmoid.

    Args:
        like: example of the network's inputs.
        kernels: number of kernels of each gradient component.
        rate: dropout rate.
        generator: source of initial weights and of dropout masks.
        deviation: standard deviation of initial weights, with biases 0; None for PyTorch's scheme.
        wider: factor of the components' output; the paper's is the number of snapshots.
    """

    def __init__(
        self,
        like: Components,
        *,
        kernels: int,
        rate: float,
        generator: torch.Generator,
        deviation: float | None = None,
        wider: int = 1,
    ) -> None:
        super().__init__()
        dropout = Dropout(rate, generator)
        widths = (*COMPONENT[:-1], wider * COMPONENT[-1])
        self.names = list(like.flat), list(like.gradients)
        with torch.device("meta"):
            flat = [_layers((leaf.shape[1], *widths), dropout) for leaf in like.flat.values()]
            of_layers = [
                GradientComponent(like, name, kernels, dropout, widths) for name in like.gradients
            ]
            width = widths[-1] * (len(flat) + len(of_layers))
            self.flat, self.of_layers = nn.ModuleList(flat), nn.ModuleList(of_layers)
            self.encoder = _layers((width, *ENCODER[:-1]), dropout)
            self.last = nn.Linear(ENCODER[-2], ENCODER[-1])
        initialise(self, generator=generator)
        if deviation is not None:
            set_paper_weights(self, deviation, generator)

    def forward(self, components: Components) -> Tensor:
        """Return the log odds of membership ``[n]``."""
        flat, layers = self.names
        seen = [part(components.flat[name]) for name, part in zip(flat, self.flat, strict=True)]
        seen += [part(components, name) for name, part in zip(layers, self.of_layers, strict=True)]
        odds: Tensor = self.last(self.encoder(torch.cat(seen, dim=1)))[:, 0]
        return odds


def _layers(widths: Sequence[int], dropout: Dropout) -> nn.Sequential:
    """Return fully connected layers, each with ReLU and dropout."""
    layers: list[nn.Module] = []
    for width_in, width_out in itertools.pairwise(widths):
        layers += [nn.Linear(width_in, width_out), nn.ReLU(), dropout]
    return nn.Sequential(*layers)


def set_paper_weights(network: nn.Module, deviation: float, generator: torch.Generator) -> None:
    """Draw the weights of a network from N(0, deviation), and set its biases to 0."""
    for name, leaf in network.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(leaf)
        else:
            nn.init.normal_(leaf, 0, deviation, generator)


def state_of(network: nn.Module) -> Mapping[str, Tensor]:
    """Return a copy of a network's weights."""
    return {name: leaf.clone() for name, leaf in network.state_dict().items()}
