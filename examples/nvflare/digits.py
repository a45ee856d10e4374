"""Network and records of the clients, and the auditor's task. The digits are scikit-learn's."""

from functools import cache

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

CLIENTS, PER_CLIENT = 2, 16


class Net(nn.Module):
    """A small network for gray pictures of 8 x 8 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(64, 48)
        self.fc2 = nn.Linear(48, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits ``[n, 10]`` of pictures ``[n, 1, 8, 8]``."""
        return self.fc2(torch.sigmoid(self.fc1(x.flatten(1))))


@cache
def pictures() -> tuple[Tensor, Tensor]:
    """Return pictures ``[n, 1, 8, 8]`` and labels ``[n]``; the first are those of client 0."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    x = torch.from_numpy(digits.images[order]).float()[:, None] / 16
    return x, torch.from_numpy(digits.target[order])


def records_of(client: int) -> tuple[Tensor, Tensor]:
    """Return the records of a client, counted from 0."""
    rows = slice(client * PER_CLIENT, (client + 1) * PER_CLIENT)
    x, y = pictures()
    return x[rows], y[rows]


def task():  # noqa: D103 - leakgauge is not needed on clients
    import leakgauge

    x, y = pictures()
    client = np.zeros(len(x), dtype=np.int64)
    for number in range(CLIENTS):
        client[number * PER_CLIENT : (number + 1) * PER_CLIENT] = number + 1
    return leakgauge.Task(Net(), "cross_entropy"), leakgauge.from_arrays(x, y, {"client": client})
