"""Gradient inversion written naively: one batch, plain double backward, loops."""

import copy
import math

import torch


def gradient(task, params, x, y, *, graph=False):
    """Return the gradient of one batch ``x [B, ...]`` by plain autograd, leaf ``[*p]``."""
    model = _loaded(task, params)
    leaves = dict(model.named_parameters())
    found = torch.autograd.grad(task.loss(model(x), y), leaves.values(), create_graph=graph)
    return dict(zip(leaves, found, strict=True))


def slope(task, params, x, y, wanted, distance):
    """Return the distance and its derivative in ``x``, by double backward."""
    x = x.detach().clone().requires_grad_()
    value = distance(gradient(task, params, x, y, graph=True), wanted)
    return value.detach(), torch.autograd.grad(value, x)[0]


def squared_error(found, wanted):
    total = 0
    for name in wanted:
        total = total + ((found[name] - wanted[name]) ** 2).sum()
    return total


def weighted_cosine(found, wanted, weights):
    """Compute Eq. 6, layer by layer: each layer's vector is scaled by the root of its weight."""
    ours = torch.cat([math.sqrt(weights[name]) * found[name].flatten() for name in wanted])
    theirs = torch.cat([math.sqrt(weights[name]) * wanted[name].flatten() for name in wanted])
    return 1 - torch.nn.functional.cosine_similarity(ours, theirs, dim=0, eps=0)


def zero_modifier(gradients):
    """Compute 1 / (1 - p) of Eq. 8, number by number; return 1 if all numbers are 0."""
    numbers = [float(one) for leaf in gradients for one in leaf.flatten()]
    p = sum(one == 0 for one in numbers) / len(numbers)
    return 1 / (1 - p) if p < 1 else 1.0


def weighted_layers(found, wanted, weights):
    """Compute Eq. 6 in its other reading: each module's cosine distance times its weight."""
    total = 0
    for module in {name.rpartition(".")[0] for name in wanted}:
        names = [name for name in wanted if name.rpartition(".")[0] == module]
        ours, theirs = (torch.cat([side[n].flatten() for n in names]) for side in (found, wanted))
        angle = torch.nn.functional.cosine_similarity(ours, theirs, dim=0, eps=0)
        total = total + weights[names[0]] * (1 - angle)
    return total


def cosine(found, wanted):
    return weighted_cosine(found, wanted, dict.fromkeys(wanted, 1.0))


def total_variation(image):
    """Compute the total variation of an image ``[C, H, W]``, pixel by pixel."""
    channels, height, width = image.shape
    down = [
        abs(float(image[c, h + 1, w] - image[c, h, w]))
        for c in range(channels)
        for h in range(height - 1)
        for w in range(width)
    ]
    across = [
        abs(float(image[c, h, w + 1] - image[c, h, w]))
        for c in range(channels)
        for h in range(height)
        for w in range(width - 1)
    ]
    return sum(down) / len(down) + sum(across) / len(across)


def local_training(task, params, x, y, *, steps, lr, epochs=1):
    """Train a client; return (weights before - weights after) / (lr * number of steps)."""
    model = _loaded(task, params)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    size = len(x) // steps
    for _ in range(epochs):
        for step in range(steps):
            batch = slice(step * size, (step + 1) * size)
            optimizer.zero_grad()
            task.loss(model(x[batch]), y[batch]).backward()
            optimizer.step()
    after = dict(model.named_parameters())
    return {name: (params[name] - after[name].detach()) / (lr * steps * epochs) for name in params}


def signed_adam(task, params, x, y, wanted, distance, *, lr, iterations, rate, low, high):
    """Search one batch by ``torch.optim.Adam`` on signs, clamped after each step."""
    x = x.clone()
    optimizer = torch.optim.Adam([x], lr=lr)
    losses = []
    for at in range(iterations):
        value, found = slope(task, params, x, y, wanted, distance)
        losses.append(float(value))
        x.grad = found.sign()
        optimizer.param_groups[0]["lr"] = lr * rate(at)
        optimizer.step()
        x.clamp_(low, high)
    return x, losses


def _loaded(task, params):
    model = copy.deepcopy(task.model)
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(params[name])
    return model
