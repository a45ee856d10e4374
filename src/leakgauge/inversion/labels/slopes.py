"""Labels under any loss of classes, from its own slopes in the outputs of the last linear layer.

A record with label c and logits z adds ``d(z, c)``, the gradient of its own loss in z, to the
gradient of the layer's bias. Plain cross entropy has d = p - y; autograd gives it for other losses,
also where the model turns the layer's outputs into others (``log_softmax``).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from leakgauge.core.checks import InputError, require
from leakgauge.core.losses import is_cross_entropy
from leakgauge.core.reductions import Reduction, reduction_of, refuse_penalty, summed_loss
from leakgauge.core.types import Grads, Params, Task
from leakgauge.gradients.probing import explained, private, trainable
from leakgauge.inversion.labels.methods import (
    CHUNK,
    Counted,
    Expected,
    OutputLayer,
    gradient_of,
    outputs_and_inputs,
)

HEIGHTS = (0.0, 1.0, 4.0, 16.0)
"""Logits of one class, above all others, at which the signs of a loss are tried out."""

TRIED = 16
"""Largest number of classes for which they are tried out."""


@dataclass(frozen=True, eq=False)
class Slopes:
    """The loss as a function of the last linear layer's outputs.

    Attributes:
        task: loss, and a private copy of the model.
        layer: the last linear layer.
        classes: number of its outputs.
        record: any record ``[1, ...]``; None if the layer's outputs are those of the model.
        reduction: how the loss combines the records of a batch.
    """

    task: Task
    layer: OutputLayer
    classes: int
    record: Tensor | None
    reduction: Reduction

    @classmethod
    def of(cls, task: Task, params: Params, layer: OutputLayer, like: Tensor | None) -> "Slopes":
        """Return the slopes of a task; the arguments are those of ``infer_labels``.

        Raises:
            InputError: the loss has no classes, its records interact in a way that is not a sum or
                a mean weighted by class, or the model does not end in the layer.
        """
        params = trainable(task.model, params)
        weight = params[layer.weight]
        reduction = reduction_of(task.mean_loss, len(weight), like=weight)
        if reduction is None:
            raise InputError(
                "labels are inferred from the slope of cross entropy, and the task has another "
                "loss; pass the labels (as known), or take a loss of classes that is the sum of "
                "the records' losses, or their mean, also weighted by class"
            )
        refuse_penalty(
            task.mean_loss, weight.new_zeros(2, len(weight)), torch.arange(2).to(weight.device)
        )
        own, record = private(task, params), None
        if like is not None:
            seen = outputs_and_inputs(task, params, layer, like[:1, :2])
            record = None if torch.equal(seen.outputs, seen.logits) else like[0, :1]
        found = cls(own, layer, len(weight), record, reduction)
        if record is not None:
            found._require_no_other_way(record)
        return found

    @property
    def is_plain(self) -> bool:
        """Whether the loss is the plain mean cross entropy of the layer's outputs."""
        like = self.task.model.get_parameter(self.layer.weight)
        return self.record is None and is_cross_entropy(
            self.task.mean_loss, self.classes, like=like
        )

    def by_class(self, z: Tensor, labels: Iterable[int] | None = None) -> Iterator[Tensor]:
        """Yield, for each label, the gradient of records' own losses in their logits ``[n, C]``.

        Args:
            z: outputs of the layer ``[n, C]``.
            labels: the labels; None for all.
        """
        with torch.enable_grad():
            leaf = z.detach().requires_grad_()
            outputs = self._outputs(leaf)
            for label in range(self.classes) if labels is None else labels:
                targets = torch.full((len(z),), label, device=z.device)
                loss = summed_loss(self.task.mean_loss, outputs, targets)
                yield torch.autograd.grad(loss, leaf, retain_graph=True)[0].detach()

    def _require_no_other_way(self, record: Tensor) -> None:
        """Refuse a model whose outputs another record changes where the layer's stay."""
        like = self.task.model.get_parameter(self.layer.weight)
        z = torch.linspace(-1, 1, self.classes).to(like)[None]
        with torch.no_grad():
            one, other = (replace(self, record=x)._outputs(z) for x in (record, 0 * record))
        require(
            torch.allclose(one, other),
            f"the outputs depend on more of a record than {self.layer.module!r}, the last "
            "nn.Linear, gives; pass the labels (as known)",
        )

    def _outputs(self, z: Tensor) -> Tensor:
        """Return the model's outputs where the layer's are ``z [n, C]``."""
        if self.record is None:
            return z
        model = self.task.model
        handle = model.get_submodule(self.layer.module).register_forward_hook(lambda *_: z)
        try:
            with explained(f"{type(model).__name__} refuses records"):
                records = self.record.expand(len(z), *self.record.shape[1:])
                outputs: Tensor = self.task.outputs(records)
        finally:
            handle.remove()
        return outputs

    def show_the_label_by_sign(self) -> bool:
        """Return whether a record's slope is smallest at its label, at any logits.

        It is tried out at logits that prefer the label or another class. Label smoothing fails: a
        model can be so sure of a label that its slope is positive.
        """
        weight = self.task.model.get_parameter(self.layer.weight)
        tried = torch.linspace(0, self.classes - 1, min(TRIED, self.classes)).long().tolist()
        peaks = functional.one_hot(torch.tensor(tried), self.classes).to(weight)
        z = torch.cat([height * peaks for height in HEIGHTS])
        for label, slopes in zip(tried, self.by_class(z, tried), strict=True):
            others = slopes.clone()
            others[:, label] = torch.inf
            # Where a model is sure, rounding can make every slope zero.
            sound = (slopes[:, label] < others.amin(1)) | ~slopes.any(1)
            if not bool(sound.all()):
                return False
        return True

    def labels(self, grads: Grads) -> Tensor:
        """Return the labels of T single records ``[T]``, int64, for any loss.

        One record's gradients are d and d h; so h, the layer's input, and its logits follow, and d
        is compared with the slopes that the loss has for each label at these logits.

        Raises:
            InputError: the layer has no bias; also see ``idlg``.

        References:
            Phong et al., Privacy-Preserving Deep Learning via Additively Homomorphic Encryption,
            2018 (the input of a layer).
        """
        if self.layer.bias is None:
            raise InputError(
                "the last layer has no bias, and the sign of its gradient does not show the label "
                "under this loss; pass the labels (as known)"
            )
        bias = gradient_of(grads, self.layer.bias, 2)
        # A record that activates no neuron has h = 0; the bias alone shows its label.
        weight = gradient_of(grads, self.layer.weight, 3, may_be_zero=True)
        rows, best = torch.arange(len(bias), device=bias.device), bias.abs().argmax(dim=1)
        h = weight[rows, best] / bias[rows, best][:, None]
        model = self.task.model
        own = model.get_parameter(self.layer.weight), model.get_parameter(self.layer.bias)
        z = functional.linear(h, own[0].detach(), own[1].detach())
        apart = [(slopes - bias).norm(dim=1) for slopes in self.by_class(z)]
        return torch.stack(apart).argmin(dim=0)

    def counts(
        self, grads: Grads, params: Params, batch: int, like: Tensor, expected: Expected
    ) -> Counted:
        """Return the number of records of each class in each of T batches.

        With S, the mean slopes of a record of each class, the gradient of the bias is
        ``sum_c q_c S_c``. Shares q that add up to 1 solve it by least squares. In a mean that
        weighs class c by w_c, n_c is proportional to q_c / w_c; under a sum the gradient is B times
        as large. Without a bias, the weight's gradient is projected on the mean input of the layer.

        The other arguments are those of ``expectation`` and its result.

        Raises:
            InputError: the classes have slopes that do not distinguish them; see also ``counts``.
        """
        seen = outputs_and_inputs(self.task, params, self.layer, like)
        towards = torch.ones(like.shape[:2], dtype=torch.float64, device=like.device)
        if self.layer.bias is not None:
            sent = gradient_of(grads, self.layer.bias, 2).double()
        else:
            weight = gradient_of(grads, self.layer.weight, 3).double()
            sent = expected.along_feature(weight)
            towards = expected.along_feature(seen.feature.reshape(*like.shape[:2], -1).double())
        mean = self._mean(seen.outputs, towards)
        shares = _solved(mean, sent / batch if self.reduction.summed else sent)
        raw = shares.clamp(min=0) / self.reduction.weights
        each = batch / raw.sum(dim=1, keepdim=True)
        return Counted.nearest(each * shares / self.reduction.weights, batch, each * raw)

    def _mean(self, z: Tensor, towards: Tensor) -> Tensor:
        """Return the mean slopes by target, output and label ``[T, C, C]``, float64."""
        total = torch.zeros(len(towards), self.classes, self.classes, dtype=torch.float64)
        total, start = total.to(z.device), 0
        factors = towards.flatten()
        owner = torch.arange(len(towards), device=z.device).repeat_interleave(towards.shape[1])
        for part in torch.split(z, CHUNK):
            rows = slice(start, start + len(part))
            for label, slopes in enumerate(self.by_class(part)):
                weighted = factors[rows, None] * slopes.double()
                total[:, :, label].index_add_(0, owner[rows], weighted)
            start += len(part)
        return total / towards.shape[1]


def _solved(mean: Tensor, sent: Tensor) -> Tensor:
    """Return the shares ``[T, C]`` of sum 1 for which ``mean @ shares`` is nearest to ``sent``."""
    classes = mean.shape[2]
    start = torch.ones(classes, 1, dtype=mean.dtype, device=mean.device)
    basis = torch.linalg.qr(torch.cat([start, torch.eye(classes).to(start)[:, 1:]], dim=1)).Q
    directions = basis[:, 1:]  # along which the sum stays
    even = start[:, 0] / classes
    change = mean @ directions
    rank = torch.linalg.matrix_rank(change, rtol=classes * torch.finfo(torch.float32).eps)
    require(
        bool((rank == classes - 1).all()),
        "the loss has the same slopes for several classes at this model's outputs, so labels "
        "cannot be counted; pass the labels (as known)",
    )
    left = sent - mean @ even
    steps = torch.linalg.lstsq(change, left[..., None]).solution[..., 0]
    shares: Tensor = even + steps @ directions.T
    return shares
