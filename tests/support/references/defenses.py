"""Defenses literally as in their papers: one gradient, record or coordinate at a time."""

import math

import torch
from torch.nn.functional import cross_entropy

from support.references.gradients import loop


def rows(grads):
    """Return one flat list of numbers for each gradient, leaf by leaf."""
    count = len(next(iter(grads.values())))
    return [
        [float(v) for leaf in grads.values() for v in leaf[i].reshape(-1)] for i in range(count)
    ]


def prune(row, rate):
    kept = max(1, round((1 - rate) * len(row)))
    order = sorted(range(len(row)), key=lambda i: -abs(row[i]))
    return [value if i in order[:kept] else 0.0 for i, value in enumerate(row)]


def clip(row, l2):
    norm = math.sqrt(sum(value * value for value in row))
    return [value * min(1.0, l2 / norm) if norm > 0 else 0.0 for value in row]


def sign(row):
    return [float((value > 0) - (value < 0)) for value in row]


def pgd(network, features, label, *, gamma, alpha, steps, targeted):
    """Take signed steps along the cross-entropy, one gradient at a time."""
    found = []
    for row, wanted in zip(features, label, strict=True):
        moved = row.clone()
        for _ in range(steps):
            moved = moved.detach().requires_grad_()
            (rise,) = torch.autograd.grad(cross_entropy(network(moved[None]), wanted[None]), moved)
            moved = moved + (-alpha if targeted else alpha) * rise.sign()
            moved = torch.minimum(torch.maximum(moved, row - gamma), row + gamma)
        found.append(moved.detach())
    return torch.stack(found)


def coded_loss(task, model, x, y, noise, beta):
    """Return the loss of a bottleneck, record by record, on the layers of ``model``."""
    outputs, divergences = [], []
    for record, eps in zip(x, noise, strict=True):
        before = model.body(record[None])[0]
        mean, spread = model.mean(before), (0.5 * model.log_variance(before)).exp()
        outputs.append(model.head(mean + spread * eps))
        code = torch.distributions.Normal(mean, spread)
        unit = torch.distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
        divergences.append(torch.distributions.kl_divergence(code, unit).sum())
    return task.loss(torch.stack(outputs), y) + beta * torch.stack(divergences).mean()


def clipped_batches(task, params, x, y, batches, l2):
    """Return mean clipped gradients, leaf ``[T, *p]``, by autograd on one record at a time."""
    found = {name: [] for name in params}
    for batch in batches:
        sums = {name: torch.zeros_like(value) for name, value in params.items()}
        for record in batch:
            one = loop(task, params, x[record][None, None], y[record][None, None])
            norm = math.sqrt(sum(float(leaf.square().sum()) for leaf in one.values()))
            for name, leaf in one.items():
                sums[name] += leaf[0] * (min(1.0, l2 / norm) if norm > 0 else 0.0)
        for name, value in sums.items():
            found[name].append(value / len(batch))
    return {name: torch.stack(values) for name, values in found.items()}
