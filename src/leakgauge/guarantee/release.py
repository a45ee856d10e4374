"""Releases of one batch under both hypotheses, scored chunk by chunk."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leakgauge.core.checks import InputError, require
from leakgauge.core.rng import torch_stream
from leakgauge.core.types import Dataset, Grads, Params, Task
from leakgauge.gradients import per_example_gradients
from leakgauge.gradients.flattening import norms
from leakgauge.guarantee.mechanism import DPSGD, Mechanism, SeveralAtOnce
from leakgauge.guarantee.pair import Pair
from leakgauge.guarantee.statistic import Statistic
from leakgauge.runs.checkpoint import Checkpoint
from leakgauge.runs.work import digest_of

Floats = NDArray[np.float64]
VERSIONS = (0, 1)


@dataclass(frozen=True, eq=False)
class Hypotheses:
    """The gradients of a batch under H0 and H1, which the auditor knows before any release.

    Attributes:
        batches: per-example gradients under H0 and under H1, leaves ``[B, *p]``.
        expected: the mean of the clipped gradients, a release without its noise ``[2, *p]``.
        distance: ||clip(g_H0) - clip(g_H1)||.
    """

    batches: tuple[Grads, Grads]
    expected: Grads
    distance: float

    @property
    def size(self) -> int:
        """B, the number of gradients in a release."""
        return len(next(iter(self.batches[0].values())))


def hypotheses_of(
    task: Task, params: Params, pair: Pair, others: Dataset | None, claim: DPSGD
) -> Hypotheses:
    """Return the gradients of the pair's two versions, with the other records of its batch.

    Args:
        task: the model and its loss.
        params: all trainable parameters by name.
        pair: the record in both versions.
        others: the other records of the batch; None is a batch of one.
        claim: the DP-SGD that the mechanism claims to be, which clips.

    Raises:
        InputError: the model has no gradients of single records, or a gradient is not finite.
    """
    x, y = pair.both()
    if others is not None:
        x, y = torch.cat([x, others.x.to(x)]), torch.cat([y, others.y.to(y)])
    grads = per_example_gradients(task, params, x, y)
    require(
        all(bool(leaf.isfinite().all()) for leaf in grads.values()),
        "the record's gradient is not finite; bring smaller features or another model",
    )
    first, second = (
        {name: torch.cat([leaf[h : h + 1], leaf[2:]]) for name, leaf in grads.items()}
        for h in VERSIONS
    )
    clipped = claim.clipped({name: leaf[:2] for name, leaf in grads.items()})
    distance = norms({name: (leaf[1] - leaf[0])[None] for name, leaf in clipped.items()})
    means = [claim.clipped(one) for one in (first, second)]
    expected = {name: torch.stack([one[name].mean(dim=0) for one in means]) for name in grads}
    return Hypotheses((first, second), expected, float(distance))


CHUNK_BYTES = 2**24
"""Of releases at once; larger chunks leave the cache and touch fresh pages."""


def score_releases(
    hypotheses: Hypotheses,
    mechanism: Mechanism,
    statistic: Statistic,
    *,
    each: int,
    seed: int,
    max_bytes: int,
    checkpoint: Checkpoint | None = None,
) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Return the scores ``[each]`` under H0 and H1 of the releases that choose, and that judge.

    The weights of a statistic come from the releases that choose the threshold.

    Args:
        hypotheses: the gradients under both.
        mechanism: makes the releases.
        statistic: scores a release.
        each: number of releases under each hypothesis, to choose and again to judge.
        seed: of the noise.
        max_bytes: of releases that are held at once.
        checkpoint: keeps the scores on the way.

    Raises:
        InputError: the mechanism releases something else than one finite gradient.
    """

    kept = checkpoint or Checkpoint(None)

    def parts(role: str, h: int) -> Floats:
        part = kept.part(f"{role}-{h}", after=digest_of(hypotheses.expected))
        return _parts(hypotheses, mechanism, statistic, h, each, (seed, role, h), max_bytes, part)

    chosen, judged = (tuple(parts(role, h) for h in VERSIONS) for role in ("choose", "judge"))
    ends = _float64(statistic.parts(hypotheses.expected, hypotheses.expected))
    weights = statistic.weights(chosen[0], ends[1] - ends[0])
    return (chosen[0] @ weights, chosen[1] @ weights), (judged[0] @ weights, judged[1] @ weights)


def _parts(
    hypotheses: Hypotheses,
    mechanism: Mechanism,
    statistic: Statistic,
    version: int,
    count: int,
    names: tuple[int, str, int],
    max_bytes: int,
    checkpoint: Checkpoint,
) -> Floats:
    """The statistic's parts ``[count, k]`` of ``count`` releases of one version."""
    parts: list[Tensor] = checkpoint.read() or []
    left = range(sum(map(len, parts)), count)
    grads = hypotheses.batches[version]
    for released in _releases(mechanism, grads, left, names, max_bytes, checkpoint):
        parts.append(statistic.parts(released, hypotheses.expected).cpu())
        if checkpoint.due:
            checkpoint.keep(parts)
    checkpoint.keep(parts)
    return _float64(torch.cat(parts))


def _releases(
    mechanism: Mechanism,
    grads: Grads,
    trials: range,
    names: tuple[int, str, int],
    max_bytes: int,
    checkpoint: Checkpoint,
) -> Iterator[Grads]:
    """Chunks of releases, leaf ``[n, *p]``; each release has a generator of its own.

    A chunk of a slow mechanism ends when a checkpoint is due.
    """
    # Four: the chunk twice while it is stacked, and in float64 while it is scored.
    each = 4 * sum(leaf[0].numel() * leaf.element_size() for leaf in grads.values())
    size = max(1, min(max_bytes, CHUNK_BYTES) // each)
    device = next(iter(grads.values())).device
    if isinstance(mechanism, SeveralAtOnce):
        for first in range(trials.start, trials.stop, size):
            chunk = range(first, min(first + size, trials.stop))
            yield mechanism.several(
                grads, [torch_stream(*names, trial, device=device) for trial in chunk]
            )
        return
    several: list[Grads] = []
    for trial in trials:
        released = mechanism(grads, torch_stream(*names, trial, device=device))
        _check_released(released, grads, trial)
        several.append(released)
        if len(several) == size or trial + 1 == trials.stop or checkpoint.due:
            yield {name: torch.stack([one[name] for one in several]) for name in grads}
            several = []


def _check_released(released: Grads, grads: Grads, trial: int) -> None:
    """Refuse a mechanism that releases something else than one gradient of finite numbers."""
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
    plain: Floats = values.double().cpu().numpy()
    return plain
