"""Training of the networks that tell shadow users apart."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

STEP = 1e-3
"""Learning rate of Adam."""

TRAINING_BATCH = 64


def train(
    model: nn.Module, x: Tensor, y: Tensor, *, epochs: int, generator: torch.Generator
) -> None:
    """Train a classifier in place by Adam on the cross-entropy.

    Args:
        model: features to logits.
        x: features ``[n, k]``.
        y: the user of each ``[n]``.
        epochs: passes over all of them.
        generator: every draw is its.
    """
    optimizer = torch.optim.Adam(model.parameters(), lr=STEP)
    for _ in range(epochs):
        order = torch.randperm(len(x), generator=generator)
        for batch in torch.split(order, TRAINING_BATCH):
            optimizer.zero_grad()
            torch.autograd.backward(cross_entropy(model(x[batch]), y[batch]))
            optimizer.step()
