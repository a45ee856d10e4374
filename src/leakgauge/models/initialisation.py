"""Named schemes for the first weights of a network.

The leakage of an untrained network depends on its first weights, so every run names a scheme.
"""

import math
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

from leakgauge.core.checks import require, require_choice
from leakgauge.core.memory import require_memory

Model = TypeVar("Model", bound=nn.Module)
Drawn = nn.Linear | nn.modules.conv._ConvNd

LARGE = 10**8
"""Bytes of weights from which the memory is checked before they are drawn."""

_NORMS = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm)


def initialise(model: Model, scheme: str = "pytorch", *, generator: torch.Generator) -> Model:
    """Return the model with new weights on the generator's device.

    Make the model on the ``meta`` device, so that it draws nothing from global randomness.
    Normalisation layers are not random: weight 1, bias 0, running mean 0, running variance 1.

    Args:
        model: the model, changed in place; its linear and convolutional layers become random.
        scheme: one of ``SCHEMES``, where f is a layer's fan-in:
            ``"pytorch"``: weights and biases from U(-1/sqrt(f), 1/sqrt(f)), as PyTorch does;
            ``"he"``: weights from N(0, 2/f), biases 0 (He et al., ICCV 2015, by fan-in);
            ``"he-fan-out"``: convolutions by He's scheme with fan-out, linear layers by PyTorch's:
            the scheme of torchvision's ResNets and of those that Geiping et al. invert (NeurIPS
            2020, from their code). With ``"he"`` the logits of an untrained ResNet20 in eval mode
            are ten times larger and its softmax saturates;
            ``"xavier"``: weights from U(-b, b) with b = sqrt(6 / (fan-in + fan-out)), biases 0
            (Glorot and Bengio, AISTATS 2010);
            ``"wide-uniform"``: weights and biases from U(-0.5, 0.5), the scheme of DLG (Zhu et al.,
            NeurIPS 2019, from their code).
        generator: draws the weights.

    Raises:
        InputError: the scheme is unknown or "zeros", other layers of the model have weights, or it
            needs more memory than may be used.

    >>> model = initialise(nn.Linear(4, 2, device="meta"), generator=torch.Generator())
    >>> bool(model.weight.abs().max() <= 0.5)
    True
    >>> initialise(nn.Linear(4, 2, device="meta"), "he", generator=torch.Generator()).bias.tolist()
    [0.0, 0.0]
    """
    require(
        scheme != "zeros",
        "initialisation is 'zeros', a dead point: no gradient but the last bias's depends on the "
        "records; choose 'pytorch' or 'he'",
    )
    require_choice(scheme, "initialisation", SCHEMES)
    size = sum(leaf.numel() * leaf.element_size() for leaf in model.parameters())
    if size > LARGE and generator.device.type == "cpu":
        require_memory(2 * size, "a model of this size with its gradient", "choose a smaller one")
    model = model.to_empty(device=generator.device)
    with torch.no_grad():
        for name, module in model.named_modules():
            if isinstance(module, Drawn):
                SCHEMES[scheme](module, generator)
            elif isinstance(module, _NORMS):
                module.reset_parameters()
            else:
                # Without this check such values would be uninitialised memory.
                own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
                layer = f"{type(module).__name__} {name!r}"
                require(not own, f"{layer} cannot be initialised; draw its weights yourself")
    return model


def _pytorch(layer: Drawn, generator: torch.Generator) -> None:
    bound = 1 / math.sqrt(layer.weight[0].numel())
    for value in layer.parameters(recurse=False):
        value.uniform_(-bound, bound, generator=generator)


def _he(layer: Drawn, generator: torch.Generator) -> None:
    std = math.sqrt(2 / layer.weight[0].numel())
    layer.weight.normal_(0, std, generator=generator)
    bias: Tensor | None = layer.bias
    if bias is not None:
        bias.zero_()


def _he_fan_out(layer: Drawn, generator: torch.Generator) -> None:
    if isinstance(layer, nn.Linear):
        _pytorch(layer, generator)
    else:
        nn.init.kaiming_normal_(layer.weight, 0, "fan_out", "relu", generator)
        if layer.bias is not None:
            layer.bias.zero_()


def _xavier(layer: Drawn, generator: torch.Generator) -> None:
    nn.init.xavier_uniform_(layer.weight, generator=generator)
    bias: Tensor | None = layer.bias
    if bias is not None:
        bias.zero_()


def _wide_uniform(layer: Drawn, generator: torch.Generator) -> None:
    for value in layer.parameters(recurse=False):
        value.uniform_(-0.5, 0.5, generator=generator)


SCHEMES: dict[str, Callable[[Drawn, torch.Generator], None]] = {
    "pytorch": _pytorch,
    "he": _he,
    "he-fan-out": _he_fan_out,
    "xavier": _xavier,
    "wide-uniform": _wide_uniform,
}
"""The functions that draw a layer, by the name of the scheme."""
