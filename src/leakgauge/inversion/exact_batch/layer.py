"""A linear layer of a model: what enters it, and gradients at its output."""

from typing import NoReturn

import torch
from torch import Tensor, nn

from leakgauge.core.checks import InputError, require
from leakgauge.core.losses import in_double, without_broadcast
from leakgauge.core.types import Params, Task
from leakgauge.gradients.probing import explained, private
from leakgauge.gradients.vectorising import REFUSALS
from leakgauge.gradients.walk import LINEAR, is_linear, uses, walk
from leakgauge.inversion.exact import check_reads_records, first_linear

SAME = 1e-9
"""Largest relative difference between outputs that are one, in float64."""


class ProbedLayer:
    """A float64 copy of the model, which runs from records or from the inputs of one of its layers.

    Args:
        task: a classifier.
        params: all trainable parameters by name, where the gradient was taken.
        record: a record ``[...]`` of the right shape, not a private one.
        name: name of the layer's module.

    Attributes:
        task: the copy, and the loss.
        name: name of the layer's module.
        names: names of its weight and bias among the parameters.
        reads_records: whether records enter the layer as they are.
        is_behind_relu: whether its inputs are at least 0 and often 0, on records that are tried.
        weight: its weight ``[H, D]``.
        bias: its bias ``[H]``.

    Raises:
        InputError: the layer is not linear with a bias, does not see each record once, shares its
            weights, or is not the only way from the records to the outputs.
    """

    def __init__(self, task: Task, params: Params, record: Tensor, name: str) -> None:
        own = private(Task(task.model, in_double(task.loss)), params)
        own.model.double().eval()
        self.task, self.name, self.shape = own, name, record.shape
        layer = own.model.get_submodule(name)
        if not is_linear(layer) or layer.bias is None:
            kind = "without a bias" if is_linear(layer) else type(layer).__name__
            self._refuse(f"is {kind}", "exact-batch expects an nn.Linear with a bias")
        dot = f"{name}." if name else ""
        self.names = f"{dot}weight", f"{dot}bias"
        self.weight, self.bias = layer.weight.detach(), layer.bias.detach()
        self._entered: list[Tensor] = []
        self._given: Tensor | None = None
        self._added: Tensor | None = None
        layer.register_forward_pre_hook(self._enter)
        layer.register_forward_hook(self._leave)
        self._check(record.detach().double())

    def _enter(self, layer: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        self._entered.append(given[0])
        return given if self._given is None else (self._given,)

    def _leave(self, layer: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> Tensor:
        return output if self._added is None else output + self._added

    def inputs(self, records: Tensor) -> Tensor:
        """Return what enters the layer for records ``[n, ...]``, ``[n, D]``; float64."""
        self._entered.clear()
        self.task.outputs(records.double().reshape(len(records), *self.shape))
        return self._entered[0]

    def outputs(self, x: Tensor) -> Tensor:
        """Return the model's outputs for inputs of the layer ``[n, D]``."""
        self._entered.clear()
        if self.reads_records:
            out: Tensor = self.task.outputs(x.reshape(len(x), *self.shape))
            return out
        self._given = x
        try:
            out = self.task.outputs(self._record[None])
        finally:
            self._given = None
        return out

    def classes(self, x: Tensor) -> int:
        """Return the number of classes: the model's outputs for inputs of the layer ``[n, D]``."""
        with torch.no_grad():
            out = self.outputs(x[:1])
        require(
            out.dim() == 2 and out.shape[1] > 1,
            f"the model's outputs for a record are {list(out.shape[1:])}; exact-batch expects one "
            "for each of two or more classes",
        )
        label = torch.zeros(1, dtype=torch.int64, device=out.device)
        refusal = "exact-batch expects a loss of classes, and the loss refuses a class as the label"
        with torch.no_grad(), explained(refusal), without_broadcast(out, label):
            self.task.mean_loss(out, label)
        return out.shape[1]

    def gradients(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the gradient of each record's own loss at the layer's output ``[n, H]``.

        Args:
            x: inputs of the layer ``[n, D]``, float64.
            y: labels of the records ``[n]``.
        """
        self._added = torch.zeros(len(x), len(self.bias), dtype=x.dtype, device=x.device)
        self._added.requires_grad_()
        try:
            with torch.enable_grad():
                loss = self.task.mean_loss(self.outputs(x), y) * len(x)
                (found,) = torch.autograd.grad(loss, self._added)
        finally:
            self._added = None
        return found

    def slopes(self, x: Tensor, units: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs of records ``[n, C]``, and their slopes ``[n, C]`` at one unit each.

        Args:
            x: inputs of the layer ``[n, D]``, float64.
            units: a unit of the layer for each record ``[n]``.
        """

        self._added = torch.zeros(len(x), len(self.bias), dtype=x.dtype, device=x.device)
        self._added.requires_grad_()
        try:
            with torch.enable_grad():
                out = self.outputs(x)
                # Linear in these weights, so the slope by them is that of each output.
                weights = torch.zeros_like(out, requires_grad=True)
                (by_unit,) = torch.autograd.grad(
                    (out * weights).sum(), self._added, create_graph=True
                )
                (slopes,) = torch.autograd.grad(by_unit.gather(1, units[:, None]).sum(), weights)
        finally:
            self._added = None
        return out.detach(), slopes.detach()

    def mean_gradient(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """Return the gradient of the mean loss, by the name of the parameter.

        Of a layer that records enter, it is that of all parameters; else that of the layer and of
        all behind it.

        Args:
            x: inputs of the layer ``[n, D]``, float64.
            y: labels of the records ``[n]``.
        """
        named = {n: p for n, p in self.task.model.named_parameters() if p.requires_grad}
        with torch.enable_grad():
            loss = self.task.mean_loss(self.outputs(x), y)
            found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
        pairs = {n: (p, g) for (n, p), g in zip(named.items(), found, strict=True)}
        if not self.reads_records:
            pairs = {n: pair for n, pair in pairs.items() if pair[1] is not None}
        return {n: torch.zeros_like(p) if g is None else g for n, (p, g) in pairs.items()}

    def check_relu(self) -> None:
        """Refuse a layer without a ReLU behind it.

        A unit whose output is below 0 must get no gradient, and some other unit one.

        Raises:
            InputError: there is none, or the model tells no classes.
        """
        tried = self.inputs(self._tried[:1]).detach()
        y = torch.zeros(1, dtype=torch.int64, device=tried.device)
        self.classes(tried)
        found = self.gradients(tried, y)
        off = tried @ self.weight.T + self.bias < 0
        require(
            bool(off.any()) and not bool(found[off].any()) and bool(found[~off].any()),
            f"no ReLU follows the layer {self.name!r}, so records leave no unit without a "
            "gradient; exact-batch needs that, take another --method",
        )

    def _check(self, record: Tensor) -> None:
        """Try whether each record enters the layer once, and nothing passes it by."""
        model = type(self.task.model).__name__
        self._record, two = record, record.expand(2, *record.shape)
        # Records that differ in all their values show every change.
        waves = torch.arange(two.numel(), device=record.device).sin().to(two)
        self._tried = two + waves.reshape(two.shape)
        with torch.enable_grad(), explained(f"{model} refuses records {list(two.shape)}"):
            outputs = self.task.outputs(self._tried)
        require(
            isinstance(outputs, Tensor),
            f"the model's outputs are {type(outputs).__name__}; exact-batch expects scores "
            "[n, classes]: return them alone",
        )
        once = len(self._entered) == 1 and self._entered[0].shape == (2, self.weight.shape[1])
        if not once:
            self._refuse("does not see each record once, as a row", "its gradient mixes more")
        counted = uses(outputs, dict(self.task.model.named_parameters()))
        if max(counted[one] for one in self.names) > 1:
            self._refuse("shares its weights", "its gradient is not of its inputs alone")
        entered = self._entered[0].detach()
        self.reads_records = torch.equal(entered, self._tried.flatten(1))
        zeros = bool((entered >= 0).all()) and bool((entered == 0).any())
        self.is_behind_relu = zeros and not self.reads_records
        if not self.reads_records:
            self._check_alone(entered, outputs.detach())

    def _check_alone(self, entered: Tensor, outputs: Tensor) -> None:
        try:
            with torch.no_grad():
                again = self.outputs(entered)
        except REFUSALS:
            again = outputs.new_zeros(0)
        reach = SAME * float(outputs.abs().max().clamp(min=1.0))
        if again.shape != outputs.shape or not bool(((again - outputs).abs() <= reach).all()):
            self._refuse(
                "is not the only way from the records to the outputs",
                "its inputs do not tell the gradient",
            )

    def _refuse(self, what: str, why: str) -> NoReturn:
        raise InputError(f"the layer {self.name!r} {what}, so {why}; take another --method")


def first_layer(task: Task, params: Params, record: Tensor) -> ProbedLayer:
    """Return the first layer of a model, if records enter it as they are.

    The arguments are those of ``ProbedLayer``.

    Raises:
        InputError: the model begins with another layer.
    """
    name = first_linear(task.model)[0].rpartition(".")[0]
    check_reads_records(task, params, record[None])
    return ProbedLayer(task, params, record, name)


def layer_before_relu(task: Task, params: Params, record: Tensor, name: str = "") -> ProbedLayer:
    """Return a linear layer with a ReLU behind it.

    Args:
        task: a classifier.
        params: all trainable parameters by name.
        record: a record ``[...]`` of the right shape, not a private one.
        name: name of the layer's module; empty for the first one of the model that fits.

    Raises:
        InputError: the named layer does not fit, or none does.
    """
    layers = walk(task, torch.stack([record, record]))
    known = [one.name for one in layers if one.kind == LINEAR]
    if name:
        require(
            name in known,
            f"the model has no linear layer {name!r}; it has {', '.join(known) or 'none'}",
        )
    refusals: list[InputError] = []
    for each in [name] if name else known:
        try:
            layer = ProbedLayer(task, params, record, each)
            layer.check_relu()
        except InputError as error:
            refusals.append(error)
        else:
            return layer
    if refusals:
        raise refusals[0]
    raise InputError(
        f"{type(task.model).__name__} has no nn.Linear; exact-batch reads one before a ReLU, take "
        "another --method"
    )
