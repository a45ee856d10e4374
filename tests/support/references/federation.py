"""Federated training written naively: whole models, PyTorch's optimizers, loops."""

import copy
import math

import torch
from torch.nn.functional import cross_entropy


def train_locally(model, data, batches, make, change=lambda grad: grad):
    """Train a model in place, a step on each batch; ``change`` is the defense of a gradient."""
    optimizer = make(list(model.parameters()))
    for rows in batches:
        optimizer.zero_grad()
        cross_entropy(model(data.x[rows]), data.y[rows]).backward()
        for leaf in model.parameters():
            leaf.grad = change(leaf.grad)
        optimizer.step()


def fedavg(model, datasets, rounds, make, *, weighted=True):
    """Return the shared model after rounds; each round holds the batches of each participant."""
    shared = copy.deepcopy(model)
    counts = [len(data) if weighted else 1 for data in datasets]
    for orders in rounds:
        each = []
        for data, batches in zip(datasets, orders, strict=True):
            local = copy.deepcopy(shared)
            train_locally(local, data, batches, make)
            each.append(local.state_dict())
        shared.load_state_dict(averaged(each, counts))
    return shared


def averaged(states, counts):
    """Average parameters and running statistics; round the counts of batches."""
    found = {}
    for name, leaf in states[0].items():
        total = sum(
            count * state[name].double() for state, count in zip(states, counts, strict=True)
        )
        mean = total / sum(counts)
        found[name] = mean if leaf.is_floating_point() else mean.round().long()
    return found


def steps_on_the_union(model, datasets, rounds, make):
    """Take one step per round on all records of all participants, each with a new optimizer."""
    x, y = (torch.cat([getattr(data, side) for data in datasets]) for side in "xy")
    for _ in range(rounds):
        optimizer = make(list(model.parameters()))
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()


def raised(model, x, y, form):
    """Return the objective of an ascent, record by record: the mean of losses, or of their logs."""
    losses = [cross_entropy(model(one[None]), label[None]) for one, label in zip(x, y, strict=True)]
    return sum(loss.log() if form == "log" else loss for loss in losses) / len(losses)


def ascended(model, x, y, *, rate, form):
    """Return the parameters and buffers after Eq. 2, in evaluation mode."""
    model.eval()
    slopes = torch.autograd.grad(raised(model, x, y, form), list(model.parameters()))
    norm = math.sqrt(sum(float(slope.square().sum()) for slope in slopes))
    step = rate / norm if form == "unit" else rate
    moved = dict(model.state_dict())
    for (name, leaf), slope in zip(model.named_parameters(), slopes, strict=True):
        moved[name] = (leaf + step * slope).detach()
    return moved


def slopes_by_differences(model, x, y, form, width=1e-5):
    """Return the slope of an ascent's objective by central differences, without derivatives."""
    found = {}
    with torch.no_grad():
        for name, leaf in model.named_parameters():
            flat, slope = leaf.view(-1), torch.empty(leaf.numel(), dtype=leaf.dtype)
            for at in range(len(flat)):
                kept, sides = float(flat[at]), []
                for side in (width, -width):
                    flat[at] = kept + side
                    sides.append(float(raised(model, x, y, form)))
                flat[at] = kept
                slope[at] = (sides[0] - sides[1]) / (2 * width)
            found[name] = slope.view(leaf.shape)
    return found
