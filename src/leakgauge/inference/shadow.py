"""The adversary's bench: public records, the model, this round's parameters.

The threat model of Li et al. (CCS 2024, section 4.1) gives the adversary shadow records from the
population and the parameters of every round. With these it can make as many observations of its
own as it likes, from any part of its records; that is all that fitting may use.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

from leakgauge.checks import require
from leakgauge.defenses import Defense, none
from leakgauge.inference.observing import sent_gradients
from leakgauge.inference.views import View
from leakgauge.types import Dataset, Grads, Params, Task


@dataclass(frozen=True, eq=False)
class Shadow:
    """What fitting may use.

    Attributes:
        task: the model and its loss.
        params: the parameters of this round.
        data: the public records.
        secret: the secret's name; ``values`` is m.
        batch_size: B of the private batches.
        max_bytes: bound on the gradients held at once.
        defense: what is done to the gradients that the adversary learns from: ``none()`` for a
            static adversary, the client's own defense for an adaptive one.
        noise_seed: of the defense.
    """

    task: Task
    params: Params
    data: Dataset
    secret: str
    values: int
    batch_size: int
    max_bytes: int
    defense: Defense = field(default_factory=none)
    noise_seed: int = 0

    @property
    def undefended(self) -> "Shadow":
        """The same bench, with gradients as they are before any defense."""
        return replace(self, defense=none())

    def draw(
        self, n: int, *, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Bootstrap n batches, as many of each secret value, each from the records of its secret.

        Returns:
            Rows of ``data`` ``[n, B]``, drawn with replacement, and secrets ``[n]`` (section 4.1).
        """
        codes = self.data.secrets[self.secret].cpu().numpy()
        secret = rng.permutation(np.arange(n) % self.values)
        rows = np.empty((n, self.batch_size), dtype=np.int64)
        for value in range(self.values):
            members = np.flatnonzero(codes == value)
            require(len(members) > 0, f"no shadow record has secret value number {value}")
            chosen = secret == value
            rows[chosen] = rng.choice(members, size=(int(chosen.sum()), self.batch_size))
        return rows, secret

    def gradients(self, rows: NDArray[np.int64]) -> Iterator[Grads]:
        """The gradients of batches ``[n, B]``, chunk by chunk in order."""
        index = torch.from_numpy(rows).to(self.data.y.device)
        return sent_gradients(
            self.task,
            self.params,
            self.data,
            index,
            defense=self.defense,
            noise_seed=self.noise_seed,
            max_bytes=self.max_bytes,
        )

    def observe(
        self, n: int, *, view: View, rng: np.random.Generator
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Features ``[n, D]`` and secrets ``[n]`` of n bootstrapped batches."""
        rows, secret = self.draw(n, rng=rng)
        features = torch.cat([view(grads) for grads in self.gradients(rows)])
        return features.cpu().numpy(), secret

    def folds(self, count: int, *, rng: np.random.Generator) -> Iterator[tuple["Shadow", "Shadow"]]:
        """Pairs (rest, fold) that share no record, and no person where there are persons.

        Splitting bootstrapped batches instead would let a record stand on both sides.
        """
        codes = self.data.secrets[self.secret].cpu().numpy()
        units = np.arange(len(codes)) if self.data.users is None else self.data.users.cpu().numpy()
        fewest = min(len(np.unique(units[codes == value])) for value in range(self.values))
        what = "records" if self.data.users is None else "persons"
        require(
            fewest >= 2 * count,
            f"{count} folds of the shadow {what} need {2 * count} with each secret value, there "
            f"are {fewest}; raise --shadow, or choose --adversary forest, which needs no folds",
        )
        kind = StratifiedKFold if self.data.users is None else StratifiedGroupKFold
        users = None if self.data.users is None else self.data.users.cpu().numpy()
        splitter = kind(count, shuffle=True, random_state=int(rng.integers(2**31)))
        for rest, fold in splitter.split(codes, codes, users):
            yield self._only(rest), self._only(fold)

    def _only(self, rows: NDArray[np.int64]) -> "Shadow":
        index = torch.from_numpy(rows).to(self.data.y.device)
        return replace(self, data=self.data.rows(index))
