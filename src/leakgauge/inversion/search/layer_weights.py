"""How much each layer weighs when gradients are compared: AGIC's Eq. 7, Table I and Eq. 8."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import get_args

import torch
from torch import nn
from torch.fx import GraphModule, Node, symbolic_trace
from torch.nn import functional as F

from leakgauge.core.checks import InputError, require_choice, require_positive
from leakgauge.core.types import Task
from leakgauge.gradients.walk import NORMALISATION, NORMALISATIONS, walk
from leakgauge.inversion.search.objective import Form, LayerWeighted

WEIGHT_FUNCTIONS: Mapping[str, Callable[[float], float]] = MappingProxyType(
    {
        "constant": lambda depth: 0.0,
        "linear": lambda depth: depth,
        "quadratic": lambda depth: depth**2,
        "cubic": lambda depth: depth**3,
        "square-root": math.sqrt,
        "logarithmic": lambda depth: math.log1p((math.e - 1) * depth),
        "exponential": lambda depth: math.expm1(depth) / math.expm1(1),
    }
)
"""The growth of the weight from 0 at the first layer to 1 at the last, by its name."""

_PASSED = (*NORMALISATIONS, nn.Identity, nn.modules.dropout._DropoutNd)
_ADDITIONS = ("add", "iadd", "add_")


@dataclass(frozen=True)
class LayerWeights:
    """How the weight of a layer grows with its depth.

    Layer l of L weighs ``1 + (maximum - 1) * growth((l - 1) / (L - 1))``, in the order in which
    the model registers its layers. The paper's text was not at hand: the linear growth is
    what is known of Eq. 7; the other names of Table I, and that all of them rise from 1 to
    ``maximum``, are our reading. Eq. 8 is read as a factor for the layers whose output goes
    into a ReLU. The paper leaves the weight of normalisation parameters open: they take the
    weight of the layer that they follow, also its factor.

    Attributes:
        growth: one of ``WEIGHT_FUNCTIONS``.
        maximum: weight of the last layer; the first weighs 1. The default was chosen on training
            images of CIFAR-10; from 10 to 100 it moved the result by less than 1 dB.
        relu: factor for layers that a ReLU follows; 1 leaves it out.
        form: of the objective, as for ``LayerWeighted``.

    Raises:
        InputError: an unknown growth, or a number that is not above 0.

    References:
        Xu et al., AGIC, SRDS 2022, Eq. 7, Eq. 8 and Table I.

    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> LayerWeights(maximum=10.0).of(model)
    {'0.weight': 1.0, '0.bias': 1.0, '2.weight': 10.0, '2.bias': 10.0}
    """

    growth: str = "linear"
    maximum: float = 30.0
    relu: float = 1.0
    form: Form = "vector"

    def __post_init__(self) -> None:
        require_choice(self.growth, "growth of the layer weights", WEIGHT_FUNCTIONS)
        require_positive(self.maximum, "weight of the last layer")
        require_positive(self.relu, "factor of layers with a ReLU")
        require_choice(self.form, "form of the layer-weighted cosine", get_args(Form))

    def of(self, model: nn.Module) -> dict[str, float]:
        """The weight of each trainable parameter of ``model``, by name.

        Raises:
            InputError: ``relu`` is not 1, and ``torch.fx`` cannot follow the model.
        """
        layers = walk(Task(model))
        count = sum(one.kind != NORMALISATION for one in layers)
        rectified = _before_relu(model) if self.relu != 1 else set()
        weights: dict[str, float] = {}
        depth, weight = 0, 1.0
        for one in layers:
            if one.kind != NORMALISATION:
                weight = self._at(depth, count) * (self.relu if one.name in rectified else 1.0)
                depth += 1
            weights |= dict.fromkeys(one.parameters, weight)
        return weights

    def objective(self, model: nn.Module) -> LayerWeighted:
        """The layer-weighted cosine with these weights."""
        return LayerWeighted(self.of(model), form=self.form)

    def _at(self, depth: int, count: int) -> float:
        share = depth / (count - 1) if count > 1 else 0.0
        return 1 + (self.maximum - 1) * WEIGHT_FUNCTIONS[self.growth](share)


def _before_relu(model: nn.Module) -> set[str]:
    """Paths of the layers whose output reaches a ReLU through nothing but norms and additions."""
    try:
        graph = symbolic_trace(model)
    except (RuntimeError, TypeError, ValueError, AttributeError, NotImplementedError) as error:
        raise InputError(
            f"torch.fx cannot follow {type(model).__name__}, so its ReLUs are not known; set relu=1"
        ) from error
    return {
        str(node.target)
        for node in graph.graph.nodes
        if node.op == "call_module" and _rectified(node.users, graph)
    }


def _rectified(users: Iterable[Node], graph: GraphModule) -> bool:
    for node in users:
        module = graph.get_submodule(str(node.target)) if node.op == "call_module" else None
        if isinstance(module, nn.ReLU) or node.target in (F.relu, torch.relu, "relu", "relu_"):
            return True
        passed = isinstance(module, _PASSED) or _adds(node)
        if passed and _rectified(node.users, graph):
            return True
    return False


def _adds(node: Node) -> bool:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return node.op in ("call_function", "call_method") and name in _ADDITIONS
