"""Outputs of layers after their activations."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from leakgauge.core.checks import InputError, require, require_count, require_known
from leakgauge.core.memory import require_memory
from leakgauge.core.types import Params, Task
from leakgauge.gradients.batching import slices
from leakgauge.gradients.gradients import MAX_BYTES
from leakgauge.gradients.probing import explained, private
from leakgauge.gradients.walk import walk

_ACTIVATIONS = (
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.RReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU),
    *(nn.SiLU, nn.Mish, nn.Tanh, nn.Sigmoid, nn.LogSigmoid, nn.Softplus, nn.Softsign),
    *(nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid, nn.Hardshrink, nn.Softshrink, nn.Tanhshrink),
    *(nn.Threshold,),
)
"""Elementwise modules."""

TRIAL = 2
"""Number of records used to find the sizes of outputs."""


def layer_outputs(
    task: Task,
    params: Params,
    x: Tensor,
    *,
    layers: Sequence[str] | None = None,
    max_bytes: int = MAX_BYTES,
) -> dict[str, Tensor]:
    """Return T_l, the output of each layer for each record ``[n, d_l]``, on the CPU.

    If an activation module (``nn.ReLU``, ``nn.Tanh``, ``nn.GELU``, ``nn.Sigmoid`` and other
    elementwise modules) takes the layer's output directly, T_l is the output of that module. Else
    T_l is the layer's own output, before a normalisation, a pooling, or an activation called as a
    function, such as ``torch.relu``. Outputs of a layer that runs several times are concatenated.

    The caller's model stays unchanged. It runs as it is, in eval or train mode.

    Args:
        task: the model; its loss is not used.
        params: all trainable parameters by name, as from ``params_of``.
        x: records ``[n, ...]``.
        layers: names of the layers to return, as ``walk`` gives them; None for all that run. One
            layer at a time needs the least memory.
        max_bytes: memory of the outputs of a chunk of records, besides the result.

    Returns:
        Outputs by layer, in the order of ``layers``, else in the order in which layers run. A layer
        that does not run itself, because a function uses its weights, has no output.

    Raises:
        InputError: no layer that runs has this name, an output has no axis of records, or the
            result exceeds the memory that may be used.

    References:
        Mo et al., Layer-wise Characterization of Latent Information Leakage, 2021, section 3.2.

    >>> task = Task(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)))
    >>> found = layer_outputs(task, dict(task.model.named_parameters()), torch.zeros(4, 2))
    >>> {name: list(leaf.shape) for name, leaf in found.items()}, bool((found["0"] >= 0).all())
    ({'0': [4, 3], '2': [4, 1]}, True)
    """
    require_count(max_bytes, "max_bytes")
    require(len(x) > 0, "x is empty; expected x [n, ...] with n above 0")
    known = [one.name for one in walk(task, x)]
    for name in layers or ():
        require_known(name, known, f"the model has no layer {name!r} with parameters")
    wanted = known if layers is None else layers
    trial = _outputs(task, params, x[:TRIAL], wanted)
    for name in layers or ():
        require(name in trial, f"layer {name!r} never runs by itself, so it has no output")
    each = sum(leaf.nbytes for leaf in trial.values()) // len(x[:TRIAL])
    require_memory(each * len(x), "the outputs of layers", "take fewer layers or records")
    parts = [
        _outputs(task, params, x[rows], wanted)
        for rows in slices(len(x), max(1, max_bytes // max(1, each)))
    ]
    return {name: torch.cat([part[name].cpu() for part in parts]) for name in trial}


class _Watcher:
    """Keeps the outputs of layers, and replaces them by those of activations."""

    def __init__(self) -> None:
        self.raw: list[tuple[str, Tensor]] = []
        self.kept: list[Tensor] = []

    def after_layer(self, name: str, output: Any) -> None:
        """Keep an output of a layer, also as it is now, before anything changes it in place."""
        first = output[0] if isinstance(output, tuple) else output
        if isinstance(first, Tensor):
            self.raw.append((name, first))
            self.kept.append(first.detach().clone())

    def after_activation(self, given: tuple[Any, ...], output: Tensor) -> None:
        """Replace a layer's output by that of the activation that takes it."""
        for place, (_, raw) in enumerate(self.raw):
            if given and raw is given[0]:
                self.kept[place] = output.detach().clone()

    def outputs(self, name: str, count: int) -> Tensor | None:
        """Return the outputs of a layer ``[count, d]``; None if it never ran."""
        own = [one for (layer, _), one in zip(self.raw, self.kept, strict=True) if layer == name]
        for one in own:
            require(
                one.shape[:1] == (count,),
                f"the output of layer {name!r} is {list(one.shape)} for {count} records; expected "
                f"records on its first axis, [{count}, ...]",
            )
        return torch.cat([one.reshape(count, -1) for one in own], dim=1) if own else None


def _outputs(task: Task, params: Params, x: Tensor, layers: Sequence[str]) -> dict[str, Tensor]:
    """Return the outputs for some records ``[n, d]``, by layer, for layers that ran."""
    own = private(task, params)  # its hooks end with it
    seen = _Watcher()
    pair = own.paired(x)
    for name, module in own.model.named_modules():
        if name in layers:
            module.register_forward_hook(
                lambda _, given, output, name=name: seen.after_layer(name, output)
            )
        if isinstance(module, _ACTIVATIONS):
            module.register_forward_hook(
                lambda _, given, output: seen.after_activation(given, output)
            )
    refusal = explained(f"{type(own.model).__name__} refuses inputs {list(x.shape)}")
    with torch.no_grad(), torch.random.fork_rng(enabled=own.model.training), refusal:
        own.outputs(pair)
    found = {name: seen.outputs(name, len(pair)) for name in layers}
    return {name: leaf[: len(x)] for name, leaf in found.items() if leaf is not None}


AT_ONCE = 2**29
"""Memory of the held outputs, in bytes."""


class Outputs:
    """Returns the outputs of one layer after another, in the order of ``names``.

    A pass keeps the outputs of as many layers as fit into memory, so a network of many small layers
    needs one pass, not one per layer.

    Args:
        task: the model.
        params: parameters of the model.
        x: records ``[n, ...]``.
        names: layer names, in the order in which ``of`` is called.
        max_bytes: memory of the held outputs; those of one layer may exceed it.
    """

    def __init__(
        self,
        task: Task,
        params: Params,
        x: Tensor,
        names: Sequence[str],
        *,
        max_bytes: int = AT_ONCE,
    ) -> None:
        self._given = (task, params, x)
        self._names = list(names)
        self._max_bytes = max_bytes
        self._sizes: dict[str, int] | None = None
        self._held: dict[str, Tensor] = {}

    def of(self, name: str) -> Tensor:
        """Return the outputs of a layer ``[n, d]``, and release them.

        Raises:
            InputError: the layer has no outputs.
        """
        if name not in self._held:
            self._held = layer_outputs(*self._given, layers=self._together(name))
        return self._held.pop(name)

    def _together(self, name: str) -> list[str]:
        """Return the layers of the next pass, this one first."""
        sizes = self._measured()
        found, left = [name], self._max_bytes - sizes.get(name, 0)
        for other in self._names[self._names.index(name) + 1 :] if name in sizes else ():
            left -= sizes.get(other, 0)
            if left < 0:
                break
            if other in sizes:
                found.append(other)
        return found

    def _measured(self) -> dict[str, int]:
        """Return the bytes of the outputs of each layer that has outputs."""
        if self._sizes is None:
            task, params, x = self._given
            try:
                few = layer_outputs(task, params, x[:TRIAL])
            except InputError:  # raised for one layer; each layer then gets a pass
                few = {}
            self._sizes = {name: leaf[0].nbytes * len(x) for name, leaf in few.items()}
        return self._sizes
