"""The first linear layer of a model: whether a ReLU follows, and gradients at its output."""

import torch
from torch import Tensor, nn

from leakgauge.core.checks import require
from leakgauge.core.types import Params, Task
from leakgauge.gradients.probing import private
from leakgauge.inversion.exact import check_reads_records, first_linear


class FirstLayer:
    """A float64 copy of the model, and the gradient of a record's loss at its first layer's output.

    Args:
        task: a classifier that begins with a linear layer and a ReLU.
        params: all trainable parameters by name, where the gradient was taken.
        record: a record ``[...]`` of the right shape, not a private one.
        checks_relu: whether to refuse a model without a ReLU after the first layer.

    Raises:
        InputError: the model is another one.
    """

    def __init__(
        self, task: Task, params: Params, record: Tensor, *, checks_relu: bool = True
    ) -> None:
        names = first_linear(task.model)
        check_reads_records(task, params, record[None])
        self.names = names
        self.shape = record.shape
        own = private(task, params)
        own.model.double().eval()
        self.task = own
        name = names[0].rpartition(".")[0]
        self._added: Tensor | None = None
        layer = own.model.get_submodule(name)
        assert isinstance(layer, nn.Linear)
        assert layer.bias is not None
        self.weight, self.bias = layer.weight.detach(), layer.bias.detach()
        layer.register_forward_hook(self._add)
        if checks_relu:
            self._check_relu(name, record)

    def _add(self, layer: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> Tensor:
        return output if self._added is None else output + self._added

    def outputs(self, x: Tensor) -> Tensor:
        """Return the model's outputs for records ``[n, D]``."""
        out: Tensor = self.task.outputs(x.reshape(len(x), *self.shape))
        return out

    def classes(self, x: Tensor) -> int:
        """Return the number of classes: the model's outputs of a record."""
        with torch.no_grad():
            out = self.outputs(x[:1])
        require(
            out.dim() == 2 and out.shape[1] > 1,
            f"the model's outputs for a record are {list(out.shape[1:])}; exact-batch expects one "
            "for each of two or more classes",
        )
        return out.shape[1]

    def gradients(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the gradient of each record's own loss at the layer's output ``[n, H]``.

        Args:
            x: records ``[n, D]``, float64.
            y: their labels ``[n]``.
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
            x: records ``[n, D]``, float64.
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
        """Return the gradient of the mean loss of records ``[n, D]`` for all parameters."""
        named = {n: p for n, p in self.task.model.named_parameters() if p.requires_grad}
        with torch.enable_grad():
            loss = self.task.mean_loss(self.outputs(x), y)
            found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
        pairs = zip(named.items(), found, strict=True)
        return {n: torch.zeros_like(p) if g is None else g for (n, p), g in pairs}

    def _check_relu(self, name: str, record: Tensor) -> None:
        """A unit whose output is below 0 must get no gradient, and some other unit one."""
        flat = record.detach().double().reshape(1, -1)
        tried = flat + torch.arange(flat.numel(), device=flat.device).sin().reshape(flat.shape)
        y = torch.zeros(1, dtype=torch.int64, device=flat.device)
        self.classes(tried)
        found = self.gradients(tried, y)
        off = tried @ self.weight.T + self.bias < 0
        require(
            bool(off.any()) and not bool(found[off].any()) and bool(found[~off].any()),
            f"no ReLU follows the first layer {name!r}, so records leave no unit without a "
            "gradient; exact-batch needs that, take another --method",
        )
