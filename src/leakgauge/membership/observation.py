"""What an attacker with a model's parameters observes of records (Nasr et al., Figure 1).

For each record and each of T snapshots of the model: its outputs, the outputs of hidden layers,
its loss, and the gradient of the loss by layer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._pytree import tree_leaves

from leakgauge.core.checks import InputError, require
from leakgauge.core.losses import exact_loss, log_losses
from leakgauge.core.types import Dataset, Task
from leakgauge.gradients import params_of
from leakgauge.gradients.factored.base import Factors, joined
from leakgauge.gradients.factored.factors import Factoring
from leakgauge.gradients.probing import private
from leakgauge.training import outputs_of
from leakgauge.training.local import in_evaluation

TINY = 1e-300
"""The smallest loss whose logarithm is taken; a loss of exactly 0 counts as this."""

CHUNK = 256
"""Records in a forward pass."""

ACTIVATIONS = (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid)
"""Modules whose output stands for that of the layer before."""


@dataclass(frozen=True, eq=False)
class Observed:
    """Observations of n records at T snapshots.

    Attributes:
        outputs: outputs of the model ``[n, T, k]``, float64: class probabilities if the labels are
            classes, otherwise the outputs themselves.
        log_loss: natural logarithm of each record's loss ``[n, T]``, float64.
        labels: labels of the records ``[n, ...]``.
        classes: number of classes; 0 for other labels.
        hidden: flattened outputs by layer ``[n, T, d]``, in forward order.
        gradients: float32 gradients of the loss by layer at each of T snapshots, in forward order.
        log_norms: natural logarithm of their l2 norms by layer ``[n, T]``, float64.
        references: minus the loss of each record at models that were not trained on it ``[n, m]``,
            float64; m is 0 if no attack needs it.
    """

    outputs: Tensor
    log_loss: Tensor
    labels: Tensor
    classes: int
    hidden: Mapping[str, Tensor] = field(default_factory=dict)
    gradients: Mapping[str, Sequence[Factors]] = field(default_factory=dict)
    log_norms: Mapping[str, Tensor] = field(default_factory=dict)
    references: Tensor = field(default_factory=lambda: torch.empty(0))

    def __len__(self) -> int:
        return len(self.outputs)

    @property
    def snapshots(self) -> int:
        """The number of snapshots T."""
        return self.outputs.shape[1]

    def rows(self, index: Tensor) -> "Observed":
        """Return the observations of the records at ``index`` ``[m]``."""
        layers = self.gradients.items()
        return replace(
            self._cut(index),
            labels=self.labels[index],
            gradients={name: [one.rows(index) for one in each] for name, each in layers},
            references=self.references[index] if len(self.references) else self.references,
        )

    def at(self, snapshot: int) -> "Observed":
        """Return the observations at one snapshot, counted from 0."""
        one = slice(snapshot, snapshot + 1)
        gradients = {name: each[one] for name, each in self.gradients.items()}
        return replace(self._cut((slice(None), one)), gradients=gradients)

    def _cut(self, index: Any) -> "Observed":
        """Return the observations with an index for all tensors ``[n, T, ...]``."""
        return replace(
            self,
            outputs=self.outputs[index],
            log_loss=self.log_loss[index],
            hidden={name: leaf[index] for name, leaf in self.hidden.items()},
            log_norms={name: leaf[index] for name, leaf in self.log_norms.items()},
        )

    def narrowed(self, *, layers: int, hidden: int, references: int) -> "Observed":
        """Return the part of the observations that an attack needs.

        Args:
            layers: number of last layers with gradients; -1 for all.
            hidden: number of last hidden layers; -1 for all.
            references: number of models.
        """
        kept = last(list(self.gradients), layers)
        return replace(
            self,
            hidden={name: self.hidden[name] for name in last(list(self.hidden), hidden)},
            gradients={name: self.gradients[name] for name in kept},
            log_norms={name: self.log_norms[name] for name in kept},
            references=self.references[:, :references] if len(self.references) else self.references,
        )

    @property
    def log_norm(self) -> Tensor:
        """Logarithm of the norm of all observed gradients together ``[n, T]``, float64."""
        return torch.stack([2 * leaf for leaf in self.log_norms.values()]).logsumexp(0) / 2


def last(names: Sequence[str], count: int) -> Sequence[str]:
    """Return the last ``count`` names; all of them for -1.

    >>> last(["a", "b", "c"], 2), last(["a"], 0)
    (['b', 'c'], [])
    """
    return names if count < 0 else names[max(0, len(names) - count) :]


def observe(
    snapshots: Sequence[Task],
    data: Dataset,
    *,
    layers: Sequence[str] = (),
    hidden: Sequence[str] = (),
    references: Sequence[Task] = (),
) -> Observed:
    """Return the observations of records at snapshots of a model, in the CPU's memory.

    Args:
        snapshots: the model with the parameters of each snapshot, and its loss; in eval mode.
        data: the records.
        layers: names of the layers with gradients.
        hidden: names of the layers with outputs.
        references: models that were not trained on the records.

    Raises:
        InputError: the outputs of a snapshot are not a tensor, or not finite.
    """
    exact = [Task(in_evaluation(one).model, exact_loss(one.loss, data.y)) for one in snapshots]
    raw = [_outputs(task, data, number) for number, task in enumerate(exact, start=1)]
    each = [one.reshape(len(one), -1) for one in raw]
    of_classes = _are_of_classes(each[0], data.y)
    losses = [
        log_losses(task.loss, outputs, data.y) for task, outputs in zip(snapshots, raw, strict=True)
    ]
    seen = [functional.softmax(one, 1) if of_classes else one for one in each]  # float64
    of_hidden = [hidden_outputs(one, data.x, hidden) for one in exact]
    return Observed(
        torch.stack(seen, dim=1).cpu(),
        torch.stack(losses, dim=1).cpu(),
        data.y.cpu(),
        each[0].shape[1] if of_classes else 0,
        {name: torch.stack([one[name] for one in of_hidden], dim=1).cpu() for name in hidden},
        references=_losses_at(references, data),
        **_gradients(exact, data, layers),
    )


def has_classes(task: Task, data: Dataset) -> bool:
    """Return whether the model scores classes: several outputs, and one class for each record."""
    first = data.rows(torch.arange(1, device=data.y.device))
    return _are_of_classes(_outputs(in_evaluation(task), first, 1).reshape(1, -1), first.y)


def _are_of_classes(outputs: Tensor, y: Tensor) -> bool:
    return y.ndim == 1 and not y.is_floating_point() and outputs.shape[1] > 1


def _losses_at(references: Sequence[Task], data: Dataset) -> Tensor:
    """Return minus the loss at each model ``[n, m]``; empty without models."""
    losses = [
        -log_losses(task.loss, _outputs(task, data, number), data.y).exp()
        for number, task in enumerate(references, start=1)
    ]
    return torch.stack(losses, dim=1).cpu() if losses else torch.empty(0)


def _gradients(snapshots: Sequence[Task], data: Dataset, layers: Sequence[str]) -> dict[str, Any]:
    if not layers:
        return {}
    each = [_factors_of(task, data, layers) for task in snapshots]
    norms = {name: torch.stack([_norms(one[name]) for one in each], dim=1) for name in layers}
    return {
        "gradients": {name: [_to_memory(one[name]) for one in each] for name in layers},
        "log_norms": {name: leaf.clamp(min=TINY).log().cpu() for name, leaf in norms.items()},
    }


def _to_memory(one: Factors) -> Factors:
    """Return factors as float32 in the CPU's memory, where attacks are fitted."""
    return one.to(torch.float32).to("cpu")


def _factors_of(task: Task, data: Dataset, layers: Sequence[str]) -> dict[str, Factors]:
    """Return the factors of all records, computed in chunks."""
    params = params_of(task.model)
    factoring = Factoring.start(task, params, data.x, data.y, layers=layers)
    parts = [
        factoring(params, x, y)
        for x, y in zip(torch.split(data.x, CHUNK), torch.split(data.y, CHUNK), strict=True)
    ]
    return {name: joined([part[name] for part in parts]) for name in layers}


def _norms(one: Factors) -> Tensor:
    """Return norms in float64: float32 squares of members' gradients are 0."""
    parts = (one.rows(slice(at, at + CHUNK)) for at in range(0, len(one), CHUNK))
    return torch.cat([part.to(torch.float64).norms() for part in parts])


def hidden_outputs(task: Task, x: Tensor, layers: Sequence[str]) -> dict[str, Tensor]:
    """Return the flattened outputs ``[n, d]`` of layers, by name; the model stays unchanged.

    Where an activation module, such as ``nn.ReLU``, takes a layer's output as it is, the output is
    that of the activation, as in the paper. Otherwise it is the layer's own, as where the
    activation is a function or follows a sum. A layer that never runs itself has the output of the
    nearest enclosing module that runs. The first tensor counts of an output in several parts, as of
    ``nn.LSTM``. The outputs of a layer that runs several times, as ``nn.LSTMCell``, are joined.

    Raises:
        InputError: the output of a layer has no axis of records.
    """
    if not layers:
        return {}
    own = private(task, params_of(task.model))
    with torch.no_grad():
        two, three = (_calls(own, x[torch.arange(n) % len(x)], layers) for n in (2, 3))
        axes = {name: _record_axis(name, two[name], three[name]) for name in layers}
        parts = [_calls(own, part, layers) for part in torch.split(x, CHUNK)]
    return {
        name: torch.cat([_rows(part[name], axis) for part in parts])[: len(x)]
        for name, axis in axes.items()
    }


_EACH = -1
"""In place of the axis of records: a model calls the layer for each record alone."""


def _record_axis(name: str, two: Sequence[Tensor], three: Sequence[Tensor]) -> int:
    """Return the axis of records in the outputs for 2 and for 3 records: the one that grows."""
    if (len(two), len(three)) == (2, 3) and two[0].shape == three[0].shape:
        return _EACH
    sizes = list(zip(two[0].shape, three[0].shape, strict=False))
    grown = [axis for axis, (before, after) in enumerate(sizes) if before != after]
    require(
        len(two) == len(three) and len(grown) == 1 and sizes[grown[0]] == (2, 3),
        f"the layer {name!r} gives {list(two[0].shape)} for 2 records and {list(three[0].shape)} "
        "for 3, without an axis of records; take an --adversary with hidden=0",
    )
    return grown[0]


def _rows(calls: Sequence[Tensor], axis: int) -> Tensor:
    """Return the outputs ``[n, d]`` of all calls of a layer."""
    if axis == _EACH:
        return torch.stack([one.flatten() for one in calls])
    return torch.cat([one.movedim(axis, 0).flatten(1) for one in calls], dim=1)


def _calls(own: Task, x: Tensor, layers: Sequence[str]) -> dict[str, list[Tensor]]:
    """Return the outputs of each layer's calls in one pass of a private model.

    A single record may run twice; see ``Task.paired``.
    """
    pair = own.paired(x)  # may run the model, so no hook hears it
    around = {name: _enclosing(name) for name in layers}
    caught: dict[str, list[Any]] = {one: [] for names in around.values() for one in names}
    named = [(own.model.get_submodule(name), _catch, parts) for name, parts in caught.items()]
    activations = [one for one in own.model.modules() if isinstance(one, ACTIVATIONS)]
    after = [(one, _activate, parts) for one in activations for parts in caught.values()]
    hooks = [
        module.register_forward_hook(partial(hook, parts)) for module, hook, parts in named + after
    ]
    own.outputs(pair)
    for handle in hooks:
        handle.remove()
    ran = {
        name: next(caught[one] for one in names if caught[one]) for name, names in around.items()
    }
    return {name: [_first_tensor(one) for one in outputs] for name, outputs in ran.items()}


def _enclosing(name: str) -> list[str]:
    """Return the names of a module and of those around it, from the inside; "" is the model.

    >>> _enclosing("a.b")
    ['a.b', 'a', '']
    """
    parts = name.split(".") if name else []
    return [".".join(parts[:end]) for end in range(len(parts), -1, -1)]


def _first_tensor(output: Any) -> Tensor:
    return next(one for one in tree_leaves(output) if isinstance(one, Tensor))


def _catch(parts: list[Any], _module: nn.Module, _args: Any, output: Any) -> None:
    parts.append(output)


def _activate(parts: list[Any], _module: nn.Module, args: Any, output: Tensor) -> None:
    """Replace a layer's output by that of the activation which takes it."""
    if parts and args and args[0] is parts[-1]:
        parts[-1] = output


def _outputs(task: Task, data: Dataset, number: int) -> Tensor:
    outputs = outputs_of(task, params_of(task.model), data, chunk=CHUNK)
    if outputs is None:
        raise InputError(
            "the model's outputs are not a tensor; expected scores [n, classes]: return them alone"
        )
    bad = int((~torch.isfinite(outputs)).reshape(len(outputs), -1).any(dim=1).sum())
    require(
        bad == 0,
        f"snapshot {number} gives outputs that are not finite for {bad} of {len(outputs)} records; "
        "leave it out, or lower the learning rate",
    )
    return outputs.double()
