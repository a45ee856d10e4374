"""Releases of one batch under both hypotheses, scored chunk by chunk."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leakgauge.core.checks import InputError, require
from leakgauge.core.rng import stream, torch_stream
from leakgauge.core.types import Dataset, Grads, Params, Task
from leakgauge.gradients import per_example_gradients
from leakgauge.gradients.flattening import flatten, norms
from leakgauge.guarantee.mechanism import Mechanism, ReleaseClaim, SeveralAtOnce
from leakgauge.guarantee.pair import NeighbourPair
from leakgauge.guarantee.statistic import Statistic
from leakgauge.results.statistics import Floats
from leakgauge.runs.checkpoint import Checkpoint
from leakgauge.runs.work import digest_of

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Hypotheses:
    """The gradients of a batch for each value, which the auditor knows before any release.

    Attributes:
        versions: gradients of the record with its own value (H0), then with each new one (H1),
            leaves ``[m, *p]``.
        others: gradients of the other records of the batch, leaves ``[B - 1, *p]``.
        expected: a release without its randomness ``[m, *p]``, such as the mean of clipped
            gradients.
        distance: ||clip(g_H0) - clip(g_H1)||, the largest over several new values.
    """

    versions: Grads
    others: Grads
    expected: Grads
    distance: float

    @property
    def size(self) -> int:
        """B, the number of gradients in a release."""
        return 1 + len(next(iter(self.others.values())))

    @property
    def values(self) -> int:
        """m, the number of values of the attribute."""
        return len(next(iter(self.versions.values())))

    def batch(self, value: int) -> Grads:
        """Return the per-example gradients with a value: 0 for the own one; leaves ``[B, *p]``."""
        return {
            name: torch.cat([leaf[value : value + 1], self.others[name]])
            for name, leaf in self.versions.items()
        }


def hypotheses_of(
    task: Task, params: Params, pair: NeighbourPair, others: Dataset | None, claim: ReleaseClaim
) -> Hypotheses:
    """Return the gradients of the pair's versions, with the other records of its batch.

    Args:
        task: the model and its loss.
        params: all trainable parameters by name.
        pair: the record in all versions.
        others: the other records of the batch; None is a batch of one.
        claim: what the mechanism claims to be, which clips.

    Raises:
        InputError: the model has no gradients of single records, or a gradient is not finite.
    """
    x, y = pair.versions()
    m = len(x)
    if others is not None:
        x, y = torch.cat([x, others.x.to(x)]), torch.cat([y, others.y.to(y)])
    grads = per_example_gradients(task, params, x, y)
    require(
        all(bool(leaf.isfinite().all()) for leaf in grads.values()),
        "the record's gradient is not finite; bring smaller features or another model",
    )
    versions, rest = (
        {name: leaf[place] for name, leaf in grads.items()} for place in (slice(m), slice(m, None))
    )
    return hypotheses_from(versions, rest, claim)


def hypotheses_from(versions: Grads, others: Grads, claim: ReleaseClaim) -> Hypotheses:
    """Return the hypotheses of gradients.

    Args:
        versions: gradients under H0, then with each new value, leaves ``[m, *p]``.
        others: gradients of the other records of the batch, leaves ``[B - 1, *p]``.
        claim: what the mechanism claims to be, which clips.
    """
    m = len(next(iter(versions.values())))
    clipped = claim.clipped(
        {name: torch.cat([leaf, others[name]]) for name, leaf in versions.items()}
    )
    means = {
        name: torch.stack([torch.cat([leaf[h : h + 1], leaf[m:]]).mean(dim=0) for h in range(m)])
        for name, leaf in clipped.items()
    }
    expected = claim.centre(means)
    size = 1 + len(next(iter(others.values())))
    apart = norms({name: leaf[1:] - leaf[:1] for name, leaf in expected.items()})
    return Hypotheses(versions, others, expected, size * float(apart.max()))


def redrawn(count: int, values: int, *, seed: int, role: str) -> Ints:
    """Return the value of each release under H1 ``[count]``: uniform over 1 to ``values - 1``.

    The record's own value, 0, is excluded. Another role of the releases draws other values.

    References:
        Li et al., CCS 2024, Definition 7.2, step 2.

    >>> redrawn(5, 2, seed=0, role="choose").tolist()
    [1, 1, 1, 1, 1]
    """
    return stream(seed, role, "values").integers(1, values, size=count)


CHUNK_BYTES = 2**24
"""Memory of a chunk of releases; larger chunks do not fit the cache."""


@dataclass(frozen=True, eq=False)
class ReleaseParts:
    """A statistic's parts of releases under H0 and H1, for choosing and for judging.

    Attributes:
        chosen: parts ``[n, v, k]`` under each hypothesis, for choosing thresholds.
        judged: parts of other releases, for the estimates.
        values: new value of each release under H1 that is chosen, and of each that is judged.
        shifts: noiseless shift of each part if its new value is the true one ``[v, k]``.
    """

    chosen: tuple[Floats, Floats]
    judged: tuple[Floats, Floats]
    values: tuple[Ints, Ints]
    shifts: Floats

    def scores(self, statistic: Statistic) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
        """Return scores ``[n]`` under H0 and H1, for choosing and for judging.

        The statistic estimates the noise from the releases that choose.
        """

        def scored(several: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
            null, other = (statistic.scores(one, self.chosen[0], self.shifts) for one in several)
            return null, other

        return scored(self.chosen), scored(self.judged)

    def furthest(self) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
        """Return the first part under H0, and under H1 with the new value that moves it most."""
        at = int(self.shifts[:, 0].argmax())
        pairs = (
            (null[:, at, 0], other[values == at + 1, at, 0])
            for (null, other), values in zip((self.chosen, self.judged), self.values, strict=True)
        )
        first, second = pairs
        return first, second


def make_releases(
    hypotheses: Hypotheses,
    mechanism: Mechanism,
    statistic: Statistic,
    *,
    each: int,
    seed: int,
    max_bytes: int,
    checkpoint: Checkpoint | None = None,
) -> ReleaseParts:
    """Return a statistic's parts of releases under both hypotheses.

    Args:
        hypotheses: gradients under both hypotheses.
        mechanism: makes the releases.
        statistic: score of a release.
        each: number of releases under each hypothesis, for each of the two purposes.
        seed: seed of the noise.
        max_bytes: largest memory for the releases that are held at once.
        checkpoint: keeps intermediate parts.

    Raises:
        InputError: a release is not one finite gradient.
    """
    kept = checkpoint or Checkpoint(None)
    roles = "choose", "judge"
    drawn = [redrawn(each, hypotheses.values, seed=seed, role=role) for role in roles]

    def parts(role: str, h: int) -> Floats:
        part = kept.part(f"{role}-{h}", after=digest_of(hypotheses.expected))
        values = drawn[roles.index(role)] if h else np.zeros(each)
        return _parts(hypotheses, mechanism, statistic, values, (seed, role, h), max_bytes, part)

    chosen, judged = ((parts(role, 0), parts(role, 1)) for role in roles)
    ends = _float64(statistic.parts(hypotheses.expected, hypotheses.expected))
    own = np.arange(ends.shape[1])  # Norm has one part for all new values
    shifts = ends[1 + own, own] - ends[0]
    first, second = (np.sort(values) for values in drawn)
    return ReleaseParts(chosen, judged, (first, second), shifts)


def pilot_releases(
    hypotheses: Hypotheses,
    mechanism: Mechanism,
    count: int,
    *,
    seed: int,
    max_bytes: int,
    checkpoint: Checkpoint | None = None,
) -> Tensor:
    """Return releases under H0 of their own, leaf after leaf ``[count, D]``.

    Args:
        hypotheses: gradients under both hypotheses.
        mechanism: makes the releases.
        count: number of releases.
        seed: seed of the noise.
        max_bytes: largest memory for the releases that are made at once.
        checkpoint: keeps the releases.

    Raises:
        InputError: a release is not one finite gradient.
    """
    kept = checkpoint or Checkpoint(None)
    part = kept.part("pilot", after=digest_of(hypotheses.expected))
    made: list[Tensor] = part.read() or []
    left, names = range(sum(map(len, made)), count), (seed, "pilot", 0)
    grads = hypotheses.batch(0)
    for released in _releases(mechanism, grads, left, names, max_bytes, part):
        made.append(flatten(released).cpu())
        if part.due:
            part.keep(made)
    part.keep(made)
    return torch.cat(made)


def _parts(
    hypotheses: Hypotheses,
    mechanism: Mechanism,
    statistic: Statistic,
    values: NDArray[Any],
    names: tuple[int, str, int],
    max_bytes: int,
    checkpoint: Checkpoint,
) -> Floats:
    """Return the statistic's parts ``[n, v, k]`` of releases, sorted by their values ``[n]``."""
    parts: list[Tensor] = checkpoint.read() or []
    left = np.argsort(values, kind="stable")[sum(map(len, parts)) :]
    for value in np.unique(values[left]).astype(int).tolist():
        trials = left[values[left] == value].tolist()
        grads = hypotheses.batch(value)
        for released in _releases(mechanism, grads, trials, names, max_bytes, checkpoint):
            parts.append(statistic.parts(released, hypotheses.expected).cpu())
            if checkpoint.due:
                checkpoint.keep(parts)
    checkpoint.keep(parts)
    return _float64(torch.cat(parts))


def _releases(
    mechanism: Mechanism,
    grads: Grads,
    trials: Sequence[int],
    names: tuple[int, str, int],
    max_bytes: int,
    checkpoint: Checkpoint,
) -> Iterator[Grads]:
    """Yield chunks of releases, leaves ``[n, *p]``; each release has its own generator.

    A chunk of a slow mechanism ends when a checkpoint is due.
    """
    # Four: the chunk twice while it is stacked, and in float64 while it is scored.
    each = 4 * sum(leaf[0].numel() * leaf.element_size() for leaf in grads.values())
    size = max(1, min(max_bytes, CHUNK_BYTES) // each)
    device = next(iter(grads.values())).device
    if isinstance(mechanism, SeveralAtOnce):
        for first in range(0, len(trials), size):
            some = trials[first:][:size]
            rngs = [torch_stream(*names, at, device=device) for at in some]
            released = mechanism.several(grads, rngs)
            yield {name: released[name] for name in grads}
        return
    several: list[Grads] = []
    for trial in trials:
        released = mechanism(grads, torch_stream(*names, trial, device=device))
        _check_released(released, grads, trial)
        several.append(released)
        if len(several) == size or trial == trials[-1] or checkpoint.due:
            yield {name: torch.stack([one[name] for one in several]) for name in grads}
            several = []


def _check_released(released: Grads, grads: Grads, trial: int) -> None:
    """Raise an error unless a release is one finite gradient."""
    require(
        isinstance(released, Mapping) and all(isinstance(v, Tensor) for v in released.values()),
        f"the mechanism released {type(released).__name__}; expected one tensor for each of the "
        "gradients' names",
    )
    for name, leaf in grads.items():
        if name not in released or released[name].shape != leaf.shape[1:]:
            given = f"{list(released[name].shape)}" if name in released else "nothing"
            raise InputError(
                f"the mechanism released {given} for {name!r}; expected one gradient of shape "
                f"{list(leaf.shape[1:])}, made of {list(leaf.shape)}"
            )
        require(
            bool(released[name].isfinite().all()),
            f"the mechanism's release number {trial + 1} has numbers in {name!r} that are not "
            "finite; look for a division by 0 or an overflow",
        )


def _float64(values: Tensor) -> Floats:
    return np.asarray(values.double().cpu().numpy(), np.float64)
