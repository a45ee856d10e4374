"""The layers of a model in the order in which they run."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from leakgauge.core.graph import nodes_of
from leakgauge.core.types import Task
from leakgauge.gradients.gradients import params_of
from leakgauge.gradients.probing import private

LINEAR, CONVOLUTION, NORMALISATION = "linear", "convolution", "normalisation"
_MADE = "parametrizations."  # the name that torch.nn.utils.parametrize gives
NORMALISATIONS = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)

_KINDS: Mapping[str, tuple[type[nn.Module], ...]] = {
    LINEAR: (nn.Linear,),
    CONVOLUTION: (nn.modules.conv._ConvNd,),
    "embedding": (nn.Embedding, nn.EmbeddingBag),
    NORMALISATION: NORMALISATIONS,
    "attention": (nn.MultiheadAttention,),
    "recurrent": (nn.RNNBase, nn.RNNCellBase),
}


@dataclass(frozen=True)
class Layer:
    """A module that holds parameters directly.

    Attributes:
        name: name of the module; empty for the model itself.
        kind: ``"linear"``, ``"convolution"``, ``"embedding"``, ``"normalisation"``,
            ``"attention"``, ``"recurrent"`` or ``"other"``.
        parameters: full names of the parameters, in the order of the module.
        order: position among the layers, from 0.
    """

    name: str
    kind: str
    parameters: tuple[str, ...]
    order: int


def walk(task: Task, x: Tensor | None = None, *, frozen: bool = False) -> list[Layer]:
    """Return the layers in the order in which they run first.

    A layer that never runs itself, because a function or an enclosing module uses its weights,
    takes the place of the nearest enclosing module that runs; layers enclosed only by the model
    come last. Shared parameters belong to the layer that is registered first, and those of a
    parametrisation, such as ``weight_norm``, to the layer whose weight they make.

    Args:
        task: the model, which stays unchanged.
        x: records ``[n, ...]``; the model runs on the first two. None takes the order in which
            layers are registered.
        frozen: whether to include parameters that are not trainable.

    >>> class Backwards(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.second, self.first = nn.Linear(4, 2), nn.Linear(3, 4)
    ...
    ...     def forward(self, x):
    ...         return self.second(self.first(x))
    >>> [layer.name for layer in walk(Task(Backwards()), torch.zeros(2, 3))]
    ['first', 'second']
    """
    known = _layers(task.model, frozen=frozen)
    if x is not None:
        ran = _ran(task, x)
        known.sort(key=lambda layer: _place(layer.name, ran))
    return [Layer(one.name, one.kind, one.parameters, order) for order, one in enumerate(known)]


def by_layer(names: Iterable[str]) -> dict[str, list[str]]:
    """Return parameter names by the module that holds them, from the names alone.

    >>> by_layer(["0.weight", "0.bias", "2.weight"])
    {'0': ['0.weight', '0.bias'], '2': ['2.weight']}
    """
    layers: dict[str, list[str]] = {}
    for name in names:
        layers.setdefault(_owner(name.rpartition(".")[0]), []).append(name)
    return layers


def _owner(path: str) -> str:
    """Return the module that uses what a module makes by a parametrisation; else the module."""
    return "" if path.startswith(_MADE) else path.partition(f".{_MADE}")[0]


def kind_of(module: nn.Module) -> str:
    """Return the kind of a module; ``Layer.kind`` lists the kinds.

    >>> kind_of(nn.Conv2d(1, 2, 3)), kind_of(nn.ReLU())
    ('convolution', 'other')
    """
    return next((kind for kind, types in _KINDS.items() if isinstance(module, types)), "other")


def is_linear(module: nn.Module) -> TypeGuard[nn.Linear]:
    """Return whether a module is ``nn.Linear`` whose weight and bias are parameters themselves.

    A parametrisation, such as ``weight_norm``, makes the weight from other parameters, which alone
    have gradients.

    >>> made = nn.utils.parametrizations.weight_norm(nn.Linear(2, 1))
    >>> is_linear(nn.Linear(2, 1)), is_linear(made)
    (True, False)
    """
    return isinstance(module, nn.Linear) and not is_parametrized(module)


def uses(found: Any, params: Mapping[str, Tensor]) -> dict[str, int]:
    """Return how many operations in the graph of a tensor read each parameter.

    A layer that runs once reads its weight once. Tied layers, and functions that get the weight of
    a layer, read it more often: then its gradient is a sum, also where some records show it not.

    Args:
        found: outputs or a loss, with its graph; tensors also in lists and mappings.
        params: trainable leaves by name.

    >>> layer, x = nn.Linear(2, 2), torch.ones(1, 2)
    >>> uses(layer(layer(x)), dict(layer.named_parameters()))
    {'weight': 2, 'bias': 2}
    """
    names = {id(leaf): name for name, leaf in params.items()}
    counted = dict.fromkeys(params, 0)
    for node in nodes_of(found):
        for one, _ in node.next_functions:
            name = names.get(id(getattr(one, "variable", None)))
            if name is not None:
                counted[name] += 1
    return counted


def _layers(model: nn.Module, *, frozen: bool) -> list[Layer]:
    """Return the layers in the order in which they are registered."""
    known = {name for name, leaf in model.named_parameters() if leaf.requires_grad or frozen}
    held: dict[str, list[str]] = {}
    for path, module in model.named_modules():
        direct = module.named_parameters(path, recurse=False)
        held.setdefault(_owner(path), []).extend(name for name, _ in direct if name in known)
    own = {path: tuple(names) for path, names in held.items() if names}
    return [
        Layer(path, kind_of(model.get_submodule(path)), names, order)
        for order, (path, names) in enumerate(own.items())
    ]


def _ran(task: Task, x: Tensor) -> dict[str, int]:
    """Return the position of each module's first start in a forward pass, by name."""
    own = private(task, params_of(task.model))  # a copy, so its hooks do not last
    places: dict[str, int] = {}
    for name, module in own.model.named_modules():
        module.register_forward_pre_hook(
            lambda _, __, name=name: places.__setitem__(name, places.get(name, len(places)))
        )
    with torch.no_grad(), torch.random.fork_rng(enabled=own.model.training):
        own.outputs(x[:2])
    return places


def _place(name: str, ran: Mapping[str, int]) -> int:
    if name in ran:
        return ran[name]
    around = name.rpartition(".")[0]
    return _place(around, ran) if around else len(ran)
