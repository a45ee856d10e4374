"""Network, data and training of the clients. The digits come with scikit-learn."""

from collections.abc import Iterable
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

PER_CLIENT, TEST_SHARE = 20, 0.2
DIM = 0.6
"""Brightness of the pictures from the second scanner; the scanner is the secret of the audit."""


class Net(nn.Module):
    """A small convolutional network for gray pictures of 8 x 8 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.fc1 = nn.Linear(8 * 8 * 8, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits ``[n, 10]`` of pictures ``[n, 1, 8, 8]``."""
        x = torch.sigmoid(self.conv(x))
        x = torch.sigmoid(self.fc1(x.flatten(1)))
        return self.fc2(x)


@cache
def pictures() -> tuple[Tensor, Tensor, NDArray[np.int64]]:
    """Return pictures ``[n, 1, 8, 8]``, labels and scanners ``[n]``, in random order.

    The rows of client 0 come first, then those of client 1, and so on; see ``rows_of``.
    """
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    x = torch.from_numpy(digits.images[order]).float()[:, None] / 16
    scanner = np.random.default_rng(1).integers(2, size=len(order))
    for client in range(3):  # every client has one scanner
        scanner[rows_of(client)] = client % 2
    x[torch.from_numpy(scanner == 1)] *= DIM
    return x, torch.from_numpy(digits.target[order]), scanner


def rows_of(client: int) -> slice:
    """Return the rows of a client among ``pictures``."""
    return slice(client * PER_CLIENT, (client + 1) * PER_CLIENT)


def training_rows(client: int) -> slice:
    """Return the rows that a client trains on."""
    rows = rows_of(client)
    return slice(rows.start, rows.stop - round(TEST_SHARE * PER_CLIENT))


def load_data(partition_id: int, num_partitions: int, batch_size: int):
    """Return loaders of a client's records for training and for testing."""
    x, y, _ = pictures()
    rows, training = rows_of(partition_id), training_rows(partition_id)

    def loader(part: slice, *, shuffle: bool):
        records = [{"img": x[at], "label": y[at]} for at in range(part.start, part.stop)]
        return DataLoader(records, batch_size=batch_size, shuffle=shuffle)

    return loader(training, shuffle=True), loader(slice(training.stop, rows.stop), shuffle=False)


def train(net: nn.Module, trainloader: Iterable, epochs: int, lr: float, device) -> float:
    """Train the network and return its mean loss."""
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    net.train()
    losses = []
    for _ in range(epochs):
        for batch in trainloader:
            optimizer.zero_grad()
            loss = F.cross_entropy(net(batch["img"].to(device)), batch["label"].to(device))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return sum(losses) / len(losses)


def test(net: nn.Module, testloader: Iterable, device) -> tuple[float, float]:
    """Return mean loss and accuracy."""
    net.eval()
    losses, right, count = [], 0, 0
    with torch.no_grad():
        for batch in testloader:
            out, label = net(batch["img"].to(device)), batch["label"].to(device)
            losses.append(F.cross_entropy(out, label).item())
            right += int((out.argmax(1) == label).sum())
            count += len(label)
    return sum(losses) / len(losses), right / count
