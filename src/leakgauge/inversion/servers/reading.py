"""A first linear layer that is made to read records: in place of the model's own, or before it."""

import torch
from torch import Generator, Tensor, nn

from leakgauge.core.checks import InputError
from leakgauge.core.types import Task
from leakgauge.gradients import params_of
from leakgauge.gradients.probing import private
from leakgauge.inversion.exact import check_reads_records, first_linear

SHARE = 0.1
"""Size of what an inserted layer adds to a record, relative to the record."""


class ReadingLayer(nn.Module):
    """A linear layer and a ReLU that read each record, and add to it before the model sees it.

    Args:
        reads: layer from a flat record to its units.
        writes: layer from the units back to a flat record.
        model: the model behind it.
    """

    def __init__(self, reads: nn.Linear, writes: nn.Linear, model: nn.Module) -> None:
        super().__init__()
        self.reads, self.writes, self.body = reads, writes, model

    def forward(self, x: Tensor) -> Tensor:
        """Return the model's outputs for records ``[B, ...]``."""
        added = self.writes(self.reads(x.flatten(1)).relu())
        outputs: Tensor = self.body(x + added.reshape(x.shape))
        return outputs


def own_reading_layer(task: Task, record: Tensor) -> nn.Linear | None:
    """Return the model's own first linear layer, where it sees each record as it is.

    Args:
        task: the model and its loss.
        record: a public record ``[...]``.
    """
    try:
        layer = _first_layer(task.model)
        check_reads_records(task, params_of(task.model), record[None])
    except InputError:
        return None
    return layer


def reading_size(own: nn.Linear | None, x: Tensor, units: int) -> tuple[int, int]:
    """Return units and inputs of the layer that reads: of the model's own, or of one before it.

    Args:
        own: the model's own reading layer; None where it has none.
        x: public records ``[n, ...]``.
        units: units of a layer before the model.
    """
    return (units, x[0].numel()) if own is None else (own.out_features, own.in_features)


def with_reading(
    task: Task, own: nn.Linear | None, x: Tensor, weight: Tensor, bias: Tensor, generator: Generator
) -> Task:
    """Return the task with these weights in its own reading layer, or in one before its model.

    Args:
        task: the honest model and its loss; it stays as it is.
        own: the model's own reading layer; None where it has none.
        x: public records ``[n, ...]``.
        weight: weights of the layer ``[units, D]``.
        bias: its biases ``[units]``.
        generator: draws how a layer before the model writes.
    """
    if own is not None:
        return _with_first_layer(task, weight, bias)
    columns = torch.randn(*weight.T.shape, generator=generator).to(x)
    return with_reader(task, x, weight, bias, columns)


def with_reader(task: Task, x: Tensor, weight: Tensor, bias: Tensor, columns: Tensor) -> Task:
    """Return the task with a reading layer before its model.

    Args:
        task: the honest model and its loss; it stays as it is.
        x: public records ``[n, ...]``, which set the size of what the layer adds.
        weight: weights of the reading layer ``[units, D]``.
        bias: its biases ``[units]``.
        columns: weights of the layer that writes ``[D, units]``, up to their size.
    """
    units, width = weight.shape
    reads = nn.Linear(width, units, device=x.device, dtype=x.dtype)
    writes = nn.Linear(units, width, device=x.device, dtype=x.dtype)
    with torch.no_grad():
        reads.weight.copy_(weight)
        reads.bias.copy_(bias)
        writes.bias.zero_()
        added = reads(x.flatten(1)).relu() @ columns.to(x).T
        size = SHARE * _size(x) / _size(added).clamp(min=torch.finfo(x.dtype).tiny)
        writes.weight.copy_(size * columns)
    own = private(task, params_of(task.model)).model
    return Task(ReadingLayer(reads, writes, own).train(task.model.training), task.loss)


def _with_first_layer(task: Task, weight: Tensor, bias: Tensor) -> Task:
    """Return the task with other weights ``[units, D]`` and biases in its first linear layer."""
    own = private(task, params_of(task.model))
    layer = _first_layer(own.model)
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    return own


def _first_layer(model: nn.Module) -> nn.Linear:
    layer = model.get_submodule(first_linear(model)[0].rpartition(".")[0])
    assert isinstance(layer, nn.Linear)
    return layer


def _size(x: Tensor) -> Tensor:
    return x.square().mean().sqrt()
