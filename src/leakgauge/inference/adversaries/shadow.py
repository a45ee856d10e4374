"""The adversary's shadow: public records, the model and the parameters of a round.

The threat model of Li et al. (CCS 2024, section 4.1) gives the adversary shadow records from the
population and the parameters of every round. With these it can compute any
number of observations from its records. Fitting may use nothing else.
"""

import functools
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from leakgauge.core.checks import require
from leakgauge.core.rng import stream
from leakgauge.core.types import Dataset, Grads, Params, Task
from leakgauge.defenses import Defense, none
from leakgauge.inference.adversaries.sharing import Shared, features_of
from leakgauge.inference.adversaries.views import PartialView, View
from leakgauge.inference.games.mixing import Mix, Pure, bootstrap
from leakgauge.results.statistics import Ints
from leakgauge.training.observation import sent_gradients


@dataclass(frozen=True, eq=False)
class Shadow:
    """The knowledge that an adversary may fit with.

    Attributes:
        task: the model and its loss.
        params: the parameters of this round.
        data: the public records.
        secret: the name of the records' secret.
        values: m, the number of the secret's values.
        batch_size: B, the records of a private batch.
        max_bytes: the largest size of the gradients in memory.
        defense: the defense of the gradients that the adversary learns from: ``none()`` for a
            static adversary, the client's own defense for an adaptive one.
        noise_seed: the seed of the defense.
        mix: how a batch depends on its secret; None: all its records have the secret.
        above: threshold that makes the secret binary; then m is 2.
        held_out_seed: the seed of the held-out folds and their batches, which are equal in every
            round with an equal seed.
        draw_seed: the seed of the batches that attacks share.
        part: name of the selected part of the records; empty for all.
        sees: maps gradients to their observed part; None for whole gradients.
        shared: features that attacks on this shadow and on parts of it share; a changed copy starts
            without any.
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
    mix: Mix | None = None
    above: int | None = None
    held_out_seed: int = 0
    draw_seed: int = 0
    part: str = ""
    sees: Callable[[Grads], Grads] | None = None
    shared: Shared = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shared", Shared())

    @property
    def mixture(self) -> Mix:
        """Dependence of a batch on its secret."""
        return Pure(self.values) if self.mix is None else self.mix

    def split_above(self, value: int) -> "Shadow":
        """Return this shadow with a binary secret: whether the secret is above ``value``."""
        steps = replace(
            self, mix=self.mixture, above=value, values=2, part=f"{self.part}, above {value}"
        )
        return steps.sharing(self.shared)

    def sharing(self, shared: Shared) -> "Shadow":
        """Return this shadow with ``shared``, which must have the same records and defense."""
        object.__setattr__(self, "shared", shared)
        return self

    @property
    def undefended(self) -> "Shadow":
        """Return this shadow with gradients before any defense."""
        return replace(self, defense=none())

    def draw(self, n: int, *, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Return n bootstrapped batches, balanced over the values of the secret, and their secrets.

        Returns:
            Rows of ``data`` ``[n, B]``, drawn with replacement, and secrets ``[n]`` (section 4.1).
        """
        members = self._members()
        secret = rng.permutation(np.arange(n) % self.values)
        drawn = secret if self.above is None else self._within(secret == 1, rng)
        counts = self.mixture.counts(drawn, self.batch_size, rng)
        return bootstrap(members, counts, rng), secret

    def _members(self) -> list[Ints]:
        codes = self.data.secrets[self.secret].cpu().numpy()
        members = [np.flatnonzero(codes == v) for v in range(self.mixture.record_values)]
        for value, records in enumerate(members):
            require(len(records) > 0, f"no shadow record has secret value number {value}")
        return members

    def _within(self, above: NDArray[np.bool_], rng: np.random.Generator) -> Ints:
        """Return values of the game's secret, uniform above or below the threshold."""
        assert self.above is not None
        first = np.where(above, self.above + 1, 0)
        last = np.where(above, self.mixture.values, self.above + 1)
        return rng.integers(first, last)

    def gradients(self, rows: Ints) -> Iterator[Grads]:
        """Yield the gradients of batches ``[n, B]``, chunk by chunk in order.

        A defender knows the secret of its batch, and the adversary knows that of its shadow
        batches.
        """
        return self._cut(self._whole(rows))

    def _cut(self, whole: Iterator[Grads]) -> Iterator[Grads]:
        return whole if self.sees is None else map(self.sees, whole)

    def _whole(self, rows: Ints) -> Iterator[Grads]:
        index = torch.from_numpy(rows).to(self.data.y.device)
        codes = self.data.secrets[self.secret].cpu().numpy()
        secret = torch.from_numpy(self.mixture.secret_of(codes[rows]))
        return sent_gradients(
            self.task,
            self.params,
            self.data,
            index,
            defense=self.defense,
            noise_seed=self.noise_seed,
            max_bytes=self.max_bytes,
            secret=secret,
        )

    def observe(
        self, n: int, *, view: View, rng: np.random.Generator | None = None
    ) -> tuple[NDArray[np.float32], Ints]:
        """Return features ``[n, D]`` and secrets ``[n]`` of n bootstrapped batches.

        Args:
            n: the number of batches.
            view: maps gradients to features.
            rng: generator of the batches; None for those that all attacks on this shadow share.
        """
        require(
            n >= self.values,
            f"{n} shadow batches cannot show each of {self.values} secrets; ask for more batches",
        )
        if rng is None:
            key, rows, secret = self.batches(n)
            seen = view if self.sees is None else PartialView(view, self.sees)
            return self.shared.features(key, seen, lambda: self._whole(rows), n), secret
        rows, secret = self.draw(n, rng=rng)
        (features,) = features_of(self.gradients(rows), [view], n)
        return features, secret

    def batches(self, n: int) -> tuple[str, Ints, Ints]:
        """Return name, rows and secrets of the batches that all attacks on this shadow share."""
        rows, secret = self.draw(n, rng=stream(self.draw_seed, "batches", self.part, n))
        return f"{self.part}, {n} batches", rows, secret

    def held_out_gradients(self, rows: Ints) -> Iterator[Grads]:
        """Yield the gradients of batches ``[n, B]`` that several attacks score, computed once."""
        key = f"{self.part} {_digest(rows)}"
        return self._cut(self.shared.gradients(key, lambda: self._whole(rows)))

    def folds(self, count: int, *, rng: np.random.Generator) -> Iterator[tuple["Shadow", "Shadow"]]:
        """Yield pairs (rest, fold) that share no record, and no user if the data have users.

        Splitting bootstrapped batches instead would place a record on both sides.
        """
        for rest, fold in self.fold_rows(count, rng=rng):
            yield self.only(rest), self.only(fold)

    def fold_rows(self, count: int, *, rng: np.random.Generator) -> Iterator[tuple[Ints, Ints]]:
        """Yield the rows of ``data`` in each pair of ``folds``."""
        codes = self.data.secrets[self.secret].cpu().numpy()
        fewest = fewest_units(self.data, self.secret, self.mixture.record_values)
        what = "records" if self.data.users is None else "users"
        require(
            fewest >= 2 * count,
            f"{count} folds of the shadow {what} need {2 * count} with each secret value, there "
            f"are {fewest}; raise --shadow, or choose --adversary forest, which needs no folds",
        )
        users = None if self.data.users is None else self.data.users.cpu().numpy()
        yield from _folds(count, int(rng.integers(2**31)), _Records(codes, users))

    def only(self, rows: Ints) -> "Shadow":
        """Return this shadow with the records ``rows`` only."""
        index = torch.from_numpy(rows).to(self.data.y.device)
        part = f"{self.part}, records {_digest(rows)}"
        return replace(self, data=self.data.rows(index), part=part).sharing(self.shared)


def fewest_units(data: Dataset, secret: str, values: int) -> int:
    """Return the number of users (without users: records) with the rarest value of a secret."""
    codes = data.secrets[secret].cpu().numpy()
    units = np.arange(len(codes)) if data.users is None else data.users.cpu().numpy()
    return min(len(np.unique(units[codes == value])) for value in range(values))


@dataclass(frozen=True, eq=False)
class _Records:
    """Secrets ``[n]`` and users ``[n]`` of records; equal if they hold the same."""

    codes: Ints
    users: Ints | None

    @functools.cached_property
    def digest(self) -> str:
        return _digest(self.codes) + ("" if self.users is None else _digest(self.users))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Records) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


@functools.lru_cache(maxsize=4)  # each attack asks for the same folds in each round
def _folds(count: int, seed: int, records: _Records) -> tuple[tuple[Ints, Ints], ...]:
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold  # slow to load

    kind = StratifiedKFold if records.users is None else StratifiedGroupKFold
    splitter = kind(count, shuffle=True, random_state=seed)
    return tuple(splitter.split(records.codes, records.codes, records.users))


def _digest(rows: Ints) -> str:
    return hashlib.sha256(np.ascontiguousarray(rows).tobytes()).hexdigest()[:16]
