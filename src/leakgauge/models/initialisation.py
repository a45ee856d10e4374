"""Named schemes of first weights, drawn from a generator that is passed in.

What an "untrained" network gives away depends on them, so a scheme is always named.
"""

import math
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

from leakgauge.core.checks import require, require_choice

Model = TypeVar("Model", bound=nn.Module)
Drawn = nn.Linear | nn.modules.conv._ConvNd

_NORMS = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm)


def initialise(model: Model, scheme: str = "pytorch", *, generator: torch.Generator) -> Model:
    """Give a model of the ``meta`` device, or any other, new weights on the generator's device.

    Made on ``meta``, a module draws nothing from the global randomness. Layers of normalisation
    draw nothing at all: weight 1, bias 0, running mean 0, running variance 1.

    Args:
        model: its linear and convolutional layers are drawn; it is changed and returned.
        scheme: one of ``SCHEMES``, f being a layer's fan-in:
            ``"pytorch"``: weights and biases from U(-1/sqrt(f), 1/sqrt(f)), as PyTorch does;
            ``"he"``: weights from N(0, 2/f), biases 0 (He et al., ICCV 2015, by fan-in);
            ``"he-fan-out"``: convolutions so, but by fan-out, linear layers as PyTorch draws them:
            as torchvision's ResNets are, and those that Geiping et al. invert (NeurIPS 2020,
            stated in their code). By ``"he"`` the logits of an untrained ResNet20 in eval mode
            are ten times larger, and its softmax is saturated;
            ``"wide-uniform"``: weights and biases from U(-0.5, 0.5), as the authors of DLG draw
            them (Zhu et al., NeurIPS 2019; stated in their code).
        generator: draws the weights.

    Raises:
        InputError: the scheme is unknown, or all zeros; a layer is of a kind not named here.

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
    model = model.to_empty(device=generator.device)
    with torch.no_grad():
        for name, module in model.named_modules():
            if isinstance(module, Drawn):
                SCHEMES[scheme](module, generator)
            elif isinstance(module, _NORMS):
                module.reset_parameters()
            else:
                # Such values would be whatever the memory held.
                own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
                kind = f"{type(module).__name__} {name!r}"
                require(not own, f"{kind} cannot be initialised; draw its weights yourself")
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


def _wide_uniform(layer: Drawn, generator: torch.Generator) -> None:
    for value in layer.parameters(recurse=False):
        value.uniform_(-0.5, 0.5, generator=generator)


SCHEMES: dict[str, Callable[[Drawn, torch.Generator], None]] = {
    "pytorch": _pytorch,
    "he": _he,
    "he-fan-out": _he_fan_out,
    "wide-uniform": _wide_uniform,
}
"""How the layers of a network are drawn, by name."""
