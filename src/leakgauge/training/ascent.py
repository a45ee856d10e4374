"""Gradient ascent on target records, by an attacker who takes part in the training."""

import torch
from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.core.losses import log_losses
from leakgauge.core.types import Params, Task, all_finite
from leakgauge.gradients.probing import explained
from leakgauge.training.forms import LOG, UNIT
from leakgauge.training.state import Tensors, working_copy


def ascended(
    task: Task, tensors: Tensors, x: Tensor, y: Tensor, *, rate: float, form: str
) -> dict[str, Tensor]:
    """Return the tensors after one step that raises the loss on a batch.

    The model is in evaluation mode, and only its parameters move.

    Args:
        task: the model and its loss; the module is not changed.
        tensors: parameters and buffers.
        x: target records ``[n, ...]``, together one batch.
        y: their labels ``[n, ...]``.
        rate: of the step.
        form: one of ``FORMS``, see ``GradientAscent``.

    Raises:
        InputError: the records do not fit the task, or the step leads to parameters that are not
            finite.
    """
    own, leaves = working_copy(task, tensors)
    own.model.eval()
    with explained("gradient ascent failed"):
        slope = _slope(own, leaves, x, y, form)
    scale = rate / _norm(slope) if form == UNIT else rate
    moved = {name: (leaf + scale * slope[name]).detach() for name, leaf in leaves.items()}
    require(
        all_finite(moved.values()),
        f"gradient ascent at rate {rate:g} diverged (parameters are not finite); lower the rate",
    )
    return {**tensors, **moved}


def _slope(own: Task, leaves: Params, x: Tensor, y: Tensor, form: str) -> Params:
    """Return the slope of what the form raises."""
    with torch.enable_grad():
        outputs = own.model(x)
        raised = (
            log_losses(own.loss, outputs, y).mean() if form == LOG else own.mean_loss(outputs, y)
        )
    slopes = torch.autograd.grad(raised, list(leaves.values()), materialize_grads=True)
    return dict(zip(leaves, slopes, strict=True))


def _norm(slope: Params) -> float:
    """Return the l2 norm of all leaves together; 1 for zeros, which move nothing."""
    norm = torch.stack([leaf.double().norm() for leaf in slope.values()]).norm()
    return float(norm) or 1.0
