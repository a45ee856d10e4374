"""Gradients written naively: one batch at a time, with plain autograd."""

import copy

import torch


def loop(task, params, x, y):
    """Return gradients of the loss on each batch of ``x [T, B, ...]``, leaf ``[T, *p]``."""
    model = _loaded(task, params)
    found = {name: [] for name in params}
    for batch_x, batch_y in zip(x, y, strict=True):
        model.zero_grad(set_to_none=False)
        task.loss(model(batch_x), batch_y).backward()
        for name, value in model.named_parameters():
            if name in found:
                grad = torch.zeros_like(value) if value.grad is None else value.grad
                found[name].append(grad.detach().clone())
    return {name: torch.stack(values) for name, values in found.items()}


def clients(task, params, x, y, lr):
    """Return weight changes of clients that run ``torch.optim.SGD`` over ``x [T, S, B, ...]``."""
    found = {name: [] for name in params}
    for steps_x, steps_y in zip(x, y, strict=True):
        model = _loaded(task, params)
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        for batch_x, batch_y in zip(steps_x, steps_y, strict=True):
            optimizer.zero_grad()
            task.loss(model(batch_x), batch_y).backward()
            optimizer.step()
        after = dict(model.named_parameters())
        for name, values in found.items():
            values.append(after[name].detach() - params[name])
    return {name: torch.stack(values) for name, values in found.items()}


def _loaded(task, params):
    model = copy.deepcopy(task.model)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name in params:
                value.copy_(params[name])
    return model
