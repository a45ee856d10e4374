"""Trains an attack network on records with known membership."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from leakgauge.core.checks import require, require_count, require_positive
from leakgauge.core.rng import torch_stream
from leakgauge.core.threads import one_thread
from leakgauge.membership.adversaries.adversary import Floats, Labelled
from leakgauge.membership.adversaries.inputs import Components, Inputs, Reader
from leakgauge.membership.adversaries.network import PAPER_DEVIATION, AttackNetwork, state_of
from leakgauge.membership.observation import Observed
from leakgauge.results.roc import auroc


@dataclass(frozen=True)
class Platt:
    """A linear map from scores to log odds, for equally many members and others.

    Attributes:
        slope: slope, above 0; 0 if known records show nothing.
        shift: intercept.
    """

    slope: float = 1.0
    shift: float = 0.0

    def __call__(self, scores: Floats) -> Floats:
        """Return the log odds ``[n]``."""
        return self.slope * scores + self.shift


def fit_platt(scores: Floats, member: NDArray[np.bool_]) -> Platt:
    """Return the map that fits known records best, or the identity if its slope is not positive.

    Args:
        scores: scores of known records ``[n]``, higher for members.
        member: whether each is a member ``[n]``.

    References:
        Platt, Probabilistic outputs for support vector machines, 1999.

    >>> fit_platt(np.array([3.0, 4.0, 5.0, 6.0]), np.array([False, True, False, True])).slope > 0
    True
    """
    middle, width = float(scores.mean()), float(scores.std()) or 1.0
    fitted = LogisticRegression(class_weight="balanced")
    fitted.fit(((scores - middle) / width)[:, None], member)
    slope = float(fitted.coef_[0, 0]) / width
    if slope <= 0:
        return Platt()
    return Platt(slope, float(fitted.intercept_[0]) - slope * middle)


BATCH = 64
"""Records of a batch, half of them members (Nasr et al., section III-E)."""

CHUNK = 1024
"""Records that a fitted network evaluates at once."""


@dataclass(frozen=True)
class Training:
    """Training settings of an attack network.

    The paper's settings are ``Training.nasr19()``. With them, attacks that see probabilities alone
    stay at one half: weights of 0.01 and a rate of 0.0001 do not leave the start in 100 epochs.

    Attributes:
        kernels: number of kernels for each layer's gradient.
        epochs: largest number of passes over the smaller of members and non-members.
        patience: epochs without a better validation AUROC before stopping; 0 to never stop early.
        lr: learning rate of Adam.
        dropout: dropout rate.
        paper_weights: whether initial weights are N(0, 0.01) and biases 0; otherwise PyTorch's
            scheme.
        paper_width: whether the output of a component grows with the number of snapshots.
        calibrated: whether validation records calibrate the log odds; otherwise the score is the
            network's output, as in the paper. Scores of an early best epoch may all lie on one side
            of one half.

    References:
        Nasr et al., IEEE S&P 2019, section III-E and Table XIV.
    """

    kernels: int = 100
    epochs: int = 40
    patience: int = 10
    lr: float = 1e-3
    dropout: float = 0.2
    paper_weights: bool = False
    paper_width: bool = False
    calibrated: bool = True

    def __post_init__(self) -> None:
        require_count(self.kernels, "number of kernels")
        require_count(self.epochs, "number of epochs of an attack network")
        require_positive(self.lr, "learning rate of an attack network")
        require(0 <= self.dropout < 1, f"dropout is {self.dropout:g}; expected 0 up to 1")

    @classmethod
    def nasr19(cls) -> "Training":
        """Return the settings of the paper."""
        return cls(
            kernels=1000,
            epochs=100,
            patience=0,
            lr=1e-4,
            paper_weights=True,
            paper_width=True,
            calibrated=False,
        )

    @property
    def deviation(self) -> float | None:
        """Standard deviation of initial weights; None for PyTorch's scheme."""
        return PAPER_DEVIATION if self.paper_weights else None

    def wider(self, snapshots: int) -> int:
        """Return the factor of a component's output."""
        return snapshots if self.paper_width else 1


@dataclass(frozen=True, eq=False)
class FittedNetwork:
    """A trained attack network."""

    reader: Reader
    network: AttackNetwork
    platt: Platt

    def log_odds(self, records: Observed) -> Floats:
        """Return the log odds of membership ``[n]``."""
        return self.platt(_judge(self.network, self.reader(records)))


def fit(
    inputs: Inputs, training: Training, fitting: Labelled, validation: Labelled, *, seed: int
) -> FittedNetwork:
    """Return the network of the epoch with the best AUROC on validation records.

    The loss is the mean squared error of Eq. 3; that of Table I is linear and contradicts it. The
    paper chooses the epoch with the best accuracy on its *test* records, which overstates it.

    Args:
        inputs: inputs of the network.
        training: training settings.
        fitting: records to learn from.
        validation: further records, for choosing the epoch.
        seed: seed of weights, dropout and batches.
    """
    reader = Reader(inputs, fitting.records)
    seen, held = reader(fitting.records), reader(validation.records)
    generator = torch_stream(seed, "attack network")
    with one_thread():
        network = AttackNetwork(
            seen,
            kernels=training.kernels,
            rate=training.dropout,
            generator=generator,
            deviation=training.deviation,
            wider=training.wider(fitting.records.snapshots),
        )
        best, at, state = -np.inf, 0, state_of(network)
        for epoch in _epochs(network, seen, fitting, training, generator):
            found = float(auroc(validation.member, _judge(network, held)))
            if found > best:
                best, at, state = found, epoch, state_of(network)
            if training.patience and epoch - at >= training.patience:
                break
        network.load_state_dict(state)
        calibrated = Platt()
        if training.calibrated:
            calibrated = fit_platt(_judge(network, held), validation.member)
    return FittedNetwork(reader, network, calibrated)


def _epochs(
    network: AttackNetwork,
    seen: Components,
    fitting: Labelled,
    training: Training,
    generator: torch.Generator,
) -> Iterator[int]:
    optimizer = torch.optim.Adam(network.parameters(), lr=training.lr)
    member = torch.from_numpy(fitting.member)
    for epoch in range(1, training.epochs + 1):
        network.train()
        for batch in _balanced(member, generator):
            optimizer.zero_grad()
            score = network(seen.rows(batch)).sigmoid()
            error = (score - member[batch].to(score.dtype)).square().mean()
            torch.autograd.backward(error)
            optimizer.step()
        yield epoch


def _balanced(member: Tensor, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield batches of equally many members and others, one pass over the rarer kind."""
    drawn = []
    for kind in (True, False):
        rows = (member == kind).nonzero()[:, 0]
        order = torch.randperm(len(rows), generator=generator)
        drawn.append(torch.split(rows[order], BATCH // 2))
    for members, others in zip(*drawn, strict=False):
        size = min(len(members), len(others))
        yield torch.cat([members[:size], others[:size]])


def _judge(network: AttackNetwork, components: Components) -> Floats:
    """Return the network's output for each record ``[n]``."""
    network.eval()
    every = torch.arange(len(components))
    with torch.no_grad():
        parts = [network(components.rows(rows)) for rows in torch.split(every, CHUNK)]
    return np.asarray(torch.cat(parts).double().numpy(), np.float64)
