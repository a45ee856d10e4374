"""What a strategy of Flower averages in a round, and the noise that it adds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
from flwr.app import ArrayRecord, Message
from numpy.typing import NDArray

from leakgauge.core.rng import stream
from leakgauge.integrations.flower_canaries import model_of
from leakgauge.integrations.released_models import flat, names_of
from leakgauge.privacy.conformance import (
    NORM,
    SHARE,
    SINGLE,
    Check,
    ReleaseSums,
    less_noise_alone,
)
from leakgauge.results.statistics import Floats

READ = 2048
"""Coordinates of each array in which noise is read at most."""

_EXACT = 1e-3
"""Deviation that counts as rounding: of a mean, in its largest part; of a norm, in clips."""


@dataclass(frozen=True, eq=False)
class HeardRound:
    """One round, as the strategy inside of the one with noise saw it.

    Attributes:
        base: model that the server sent.
        replies: replies after clipping, which are averaged.
        aggregate: result of the inner strategy, without noise.
        weight: name of the replies' weights among their metrics; empty if there are none.
        model: model that is released, with noise.
    """

    base: ArrayRecord
    replies: Sequence[Message]
    aggregate: ArrayRecord
    weight: str
    model: ArrayRecord

    @cached_property
    def names(self) -> list[str]:
        """Names of the arrays of floats, in the order of flat models."""
        return names_of(self.base)

    @cached_property
    def start(self) -> Floats:
        """The model that the server sent ``[size]``."""
        return flat(self.base, self.names)

    @cached_property
    def released(self) -> Floats:
        """The model that is released ``[size]``."""
        return flat(self.model, self.names)

    @cached_property
    def averaged(self) -> Floats:
        """The result of the inner strategy ``[size]``."""
        return flat(self.aggregate, self.names)

    @cached_property
    def noise(self) -> Floats:
        """What was added to the aggregate ``[size]``."""
        return self.released - self.averaged

    @cached_property
    def weights(self) -> Floats | None:
        """Weight of each reply in the mean; None if the aggregate is no weighted mean."""
        stated = [
            [float(cast(float, one[self.weight])) for one in reply.content.metric_records.values()]
            for reply in self.replies
            if all(self.weight in one for one in reply.content.metric_records.values())
        ]
        if len(stated) < len(self.replies) or not all(len(one) == 1 for one in stated):
            return None
        weights = np.array(stated)[:, 0]
        weights = weights / weights.sum()
        mean, most = np.zeros(len(self.start)), 0.0
        for weight, reply in zip(weights, self.replies, strict=True):
            update = flat(model_of(reply), self.names) - self.start
            mean += weight * update
            most = max(most, float(weight * np.linalg.norm(update)))
        left = float(np.linalg.norm(self.averaged - self.start - mean))
        rounding = float(np.finfo(np.float32).eps * np.linalg.norm(self.start))
        return weights if left <= _EXACT * most + 4 * rounding else None

    def parts(self, directions: Floats, who: dict[int, int]) -> Floats | None:
        """Return what planted clients add to the mean along their directions ``[k]``.

        Args:
            directions: of planted clients ``[k, size]``.
            who: planted client of each node that is one.

        Returns:
            None if the aggregate is no weighted mean.
        """
        if self.weights is None:
            return None
        found = np.zeros(len(directions))
        for weight, reply in zip(self.weights, self.replies, strict=True):
            which = who.get(reply.metadata.src_node_id)
            if which is not None:
                update = flat(model_of(reply), self.names) - self.start
                found[which] += weight * float(directions[which] @ update)
        return found

    def norms(self) -> dict[str, float]:
        """Return the largest norm of an update by array, and that of all arrays under ``""``."""
        found: dict[str, float] = {}
        before = {name: one.numpy() for name, one in self.base.items()}  # each read takes time
        for reply in self.replies:
            record = model_of(reply)
            norms = {
                name: float(np.linalg.norm((one.numpy() - before[name]).ravel()))
                for name, one in record.items()
            }
            norms[""] = math.hypot(*norms.values())
            for name, norm in norms.items():
                found[name] = max(found.get(name, 0.0), norm)
        return found

    def singles(self) -> list[str]:
        """Return the names of arrays that are one number without an axis."""
        return [name for name, one in self.base.items() if one.numpy().ndim == 0]


class RoundsSeen:
    """Sums the noise of rounds, and keeps norm and share of a client, for the checks.

    Args:
        noise: stated noise multiplier of the updates.
        seed: seed of the coordinates in which noise is read.
    """

    def __init__(self, noise: float, seed: int) -> None:
        self._noise, self._seed = noise, seed
        self._places: list[NDArray[np.int64]] = []
        self._names: list[str] = []
        self._sums: ReleaseSums | None = None
        self._share, self._norms = 0.0, {"": 0.0}
        self.unseen: list[str] = []

    def add(
        self, heard: HeardRound, noise: Floats, *, clip: float, clients: int, inner: str
    ) -> None:
        """Take in a round.

        Args:
            heard: the round.
            noise: its noise ``[size]``, in clips over the number of clients.
            clip: norm to which updates are clipped.
            clients: stated number of clients of a round.
            inner: name of the strategy that averages.
        """
        if self._sums is None:
            self._choose(heard)
        assert self._sums is not None
        read = noise[np.concatenate(self._places)]
        self._sums.add(read, np.zeros(len(read), np.int64), self._noise)
        norms = heard.norms()
        for name in ("", *heard.singles()):
            self._norms[name] = max(self._norms.get(name, 0.0), norms[name] / clip)
        if heard.weights is None:
            self._miss(
                f"the share of one client ({inner} releases no weighted mean of the updates, for "
                "which the noise is made; the others' updates are not subtracted)"
            )
            return
        self._share = max(self._share, clients * float(heard.weights.max()))

    def checks(self) -> list[Check]:
        """Return the checks of all rounds: noise by array, norm and share of a client."""
        assert self._sums is not None
        of = np.repeat(np.arange(len(self._names)), [len(one) for one in self._places])
        found = less_noise_alone(self._sums.checks(of, self._names))
        kept = self._norms[""] <= 1 + _EXACT
        found.append(Check(NORM, "", 1.0, self._norms[""], float(kept)))
        for name, norm in self._norms.items():
            if name:
                found.append(Check(SINGLE, name, 0.0, norm, float(kept or norm == 0)))
        if self._share > 0:
            found.append(Check(SHARE, "", 1.0, self._share, float(self._share <= 1 + _EXACT)))
        return found

    def _miss(self, what: str) -> None:
        if what not in self.unseen:
            self.unseen.append(what)

    def _choose(self, heard: HeardRound) -> None:
        at, generator = 0, stream(self._seed, "planted", "coordinates")
        for name in heard.names:
            size = heard.base[name].numpy().size
            chosen = generator.choice(size, min(size, READ), replace=False)
            self._places.append(at + np.sort(chosen))
            self._names.append(name)
            at += size
        self._sums = ReleaseSums(sum(map(len, self._places)))
