"""The exact epsilon of each defense with noise, next to one from sampled releases of its code.

    python benchmarks/promises.py [SAMPLES]

Of the mechanism, the samples use only the law of the noise, Gaussian or Laplace. Its scale is
measured on releases, and the distance of neighbours on what the defense makes of two inputs. The
epsilon is then the one at which the mean of (1 - exp(epsilon - loss))+ over sampled privacy losses
is delta. Prints a table.
"""

import sys
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import optimize

from leakgauge.core.rng import torch_stream
from leakgauge.core.types import Grads
from leakgauge.defenses.claims import statement_of, with_server_noise
from leakgauge.defenses.defense import Defense
from leakgauge.privacy.promises import Neighbours

Floats = NDArray[np.float64]

DELTA = 0.01
"""Large, so that a million samples determine epsilon within 1 %."""

SAMPLES = 1_000_000
LARGE = 1e3
"""Norm of a gradient before it is clipped."""


@dataclass(frozen=True)
class Case:
    """A mechanism with its neighbours.

    Attributes:
        defense: as ``parse_defense`` reads it.
        near: unit of privacy and relation of neighbours.
        releases: number of releases that are composed.
        batch: k, number of records of a client.
        server_noise: noise multiplier of the server; None without.
    """

    defense: str
    near: Neighbours
    releases: int = 1
    batch: int = 1
    server_noise: float | None = None

    @property
    def name(self) -> str:
        """The mechanism in one line."""
        more = "" if self.server_noise is None else f", server noise {self.server_noise:g}"
        return f"{self.defense}{more}{f', {self.batch} records' if self.batch > 1 else ''}"

    @property
    def exact(self) -> float:
        """The epsilon that follows."""
        stated = statement_of(self.defense, batch_size=self.batch, server_noise=self.server_noise)
        release = stated.sparse(1) if stated.mechanism is None else stated.mechanism
        return release.follows(self.near, DELTA, rounds=self.releases).epsilon

    def made(self) -> Defense:
        """Return the defense."""
        return with_server_noise(self.defense, batch_size=self.batch, multiplier=self.server_noise)

    def sampled(self, samples: int, *, seed: int = 0) -> float:
        """Return the epsilon of sampled privacy losses."""
        defense = self.made()
        first, other = (_centre(defense, one) for one in neighbours(self))
        moved = float(torch.linalg.vector_norm(first - other))
        noise = noise_of(defense, samples * self.releases, seed).reshape(-1, self.releases)
        if self.defense.startswith("svt"):
            scale = float(np.abs(noise).mean())
            losses = (np.abs(noise + moved) - np.abs(noise)) / scale
        else:
            losses = (2 * noise * moved + moved**2) / (2 * float(noise.var()))
        return epsilon_of_losses(losses.sum(axis=1), DELTA)


CLIENT_REPLACED, CLIENT_ADDED = Neighbours("client", "replace"), Neighbours("client", "add")
RECORD_REPLACED, RECORD_ADDED = Neighbours("record", "replace"), Neighbours("record", "add")

CASES = (
    Case("local-dp:clip=1,sensitivity=1,epsilon=2,delta=0.01", CLIENT_REPLACED),
    Case("local-dp:clip=1,sensitivity=1,epsilon=2,delta=0.01", CLIENT_ADDED),
    Case("local-dp:clip=2,sensitivity=8,epsilon=2,delta=0.01", RECORD_ADDED, 4),
    Case("fixed-clipping:norm=3", CLIENT_REPLACED, server_noise=1.5),
    Case("fixed-clipping:norm=3", CLIENT_ADDED, 10, server_noise=4.0),
    Case("adaptive-clipping:norm=0.1", CLIENT_ADDED, server_noise=0.7),
    Case("dpsgd:clip=2,noise=1", RECORD_ADDED, batch=4),
    Case("dpsgd:clip=2,noise=2", RECORD_REPLACED, 3, batch=4),
    Case("dpsgd:clip=1,noise=4", CLIENT_REPLACED, batch=4),
    Case("svt:fraction=1,epsilon=0.001,noise=2,gamma=1", CLIENT_REPLACED),
    Case("svt:fraction=1,epsilon=0.001,noise=2,gamma=1", CLIENT_ADDED),
    Case("svt:fraction=1,epsilon=0.001,noise=1,gamma=1", CLIENT_REPLACED, 5),
)
"""Defenses with noise of a known law. That of svt is for an update of one coordinate: with more,
what follows from the choice of coordinates is an upper bound."""


def neighbours(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    """Return gradients of the records of two neighbours ``[k, 1]``, as far apart as they can be.

    A record may outweigh all others of its batch.
    """
    first = torch.full((case.batch, 1), LARGE, dtype=torch.float64)
    other = 0 * first if case.near.relation == "add" else -first
    if case.near.unit == "record":
        turned = first.clone()
        turned[0] = other[0]
        if case.batch == 1:  # what the others of its client send decides where it is added
            turned = -first
        return first, turned
    return first, other


def noise_of(defense: Defense, count: int, seed: int) -> Floats:
    """Return noise that the defense adds to coordinates of zero ``[count]``."""
    drawn: list[Floats] = []
    while sum(map(len, drawn)) < count:
        zeros: Grads = {"w": torch.zeros(1, count, dtype=torch.float64)}
        sent = defense.update(zeros, [torch_stream(seed, "noise", len(drawn))])["w"]
        drawn.append(sent[sent != 0].numpy())  # svt draws with replacement, and sends fewer
    return np.concatenate(drawn)[:count]


def _centre(defense: Defense, grads: torch.Tensor) -> torch.Tensor:
    each = defense.per_example
    clipped = {"w": grads} if each is None else each({"w": grads}, [])
    return defense.update.centre({"w": clipped["w"].mean(dim=0, keepdim=True)})["w"]


def epsilon_of_losses(losses: Floats, delta: float) -> float:
    """Return the epsilon at which the mean of (1 - exp(epsilon - loss))+ is delta."""

    def excess(epsilon: float) -> float:
        return float(np.maximum(0.0, -np.expm1(epsilon - losses)).mean()) - delta

    return float(optimize.brentq(excess, 0.0, float(losses.max())))


def main() -> None:
    """Print the table."""
    samples = int(sys.argv[1]) if len(sys.argv) > 1 else SAMPLES
    print("| mechanism | neighbours | releases | exact | Monte Carlo | difference |")
    print("|---|---|---|---|---|---|")
    for case in CASES:
        exact, found = case.exact, case.sampled(samples)
        print(
            f"| `{case.name}` | {case.near} | {case.releases} | {exact:.3f} | {found:.3f} "
            f"| {100 * (found / exact - 1):+.1f} % |",
            flush=True,
        )


if __name__ == "__main__":
    main()
