"""Jacobian of a gradient in the soft label, by double backward, literally as in Mo et al."""

import torch
from torch.autograd.functional import jacobian
from torch.func import functional_call


def jacobian_in_the_label(task, params, x, y):
    """Return J of each record for each parameter except biases, leaf ``[n, parameters, classes]``.

    Args:
        task: task with the model; its loss is not used.
        params: all parameters by name.
        x: records ``[n, ...]``.
        y: soft labels ``[n, classes]``.
    """
    names = [name for name in params if not name.endswith("bias")]
    found = {name: [] for name in names}
    for record, label in zip(x, y, strict=True):

        def gradient(label, record=record):
            leaves = {name: leaf.detach().requires_grad_() for name, leaf in params.items()}
            log_chances = functional_call(task.model, leaves, (record[None],)).log_softmax(1)[0]
            loss = -(label * log_chances).sum()
            wanted = [leaves[name] for name in names]
            grads = torch.autograd.grad(loss, wanted, create_graph=True)
            return tuple(grad.flatten() for grad in grads)

        for name, leaf in zip(names, jacobian(gradient, label), strict=True):
            found[name].append(leaf)
    return {name: torch.stack(leaves) for name, leaves in found.items()}
