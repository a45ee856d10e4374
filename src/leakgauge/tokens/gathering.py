"""Gathers pairs of data features and gradients at one checkpoint."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

import numpy as np
import torch
from torch import Tensor, nn

from leakgauge.core.checks import require, require_count
from leakgauge.core.rng import derive, stream, torch_stream
from leakgauge.core.types import Dataset, Params, Task
from leakgauge.data.split_members import dealt
from leakgauge.defenses import Defense, none
from leakgauge.gradients.batching import slices
from leakgauge.gradients.factored.factors import Factoring
from leakgauge.gradients.gradients import MAX_BYTES
from leakgauge.gradients.pooling import records_interact
from leakgauge.gradients.probing import private
from leakgauge.gradients.walk import walk
from leakgauge.tokens.features import batch_features, check_names, record_features
from leakgauge.tokens.sketch import WIDTH, Sketches
from leakgauge.tokens.sources import (
    FEWEST_BLOCKS,
    ROOMY,
    FixedPairs,
    Pairs,
    PairSplit,
    PooledPairs,
    blocks_of,
)
from leakgauge.training.observation import iter_gradients

SHARES = (0.6, 0.2, 0.2)
"""Shares of the records to fit, to stop and to report."""

MOST_BYTES = 2**30
"""Memory of the records' features and gradients, in bytes; further records are left out."""

GATHERED = 2000
"""Number of gathered pairs if fresh ones cannot be made from records' gradients."""

LOOSE = 2
"""Smallest number of batches that a block of records must hold."""


@dataclass(frozen=True, kw_only=True)
class Gathering:
    """Settings of the gathering of pairs.

    Attributes:
        layers: names of the watched layers.
        batch_size: number of records of a batch.
        features: name of the module that outputs the data features; None takes the input of the
            last layer.
        width: largest number of kept values of each layer's gradient and of the features.
        defense: defense of the clients.
        pairs: number of gathered pairs, if the defense or interacting records rule out fresh ones.
        chosen: number of coordinates of each longer gradient that are kept besides its sketch.

    Raises:
        InputError: a number is not above 0.
    """

    layers: Sequence[str]
    batch_size: int
    features: str | None = None
    width: int = WIDTH
    defense: Defense | None = None
    pairs: int = GATHERED
    chosen: int = 0

    def __post_init__(self) -> None:
        require_count(self.batch_size, "batch size")
        require_count(self.width, "width")
        require_count(self.pairs, "pairs")


def fewest_records(batch_size: int) -> int:
    """Return the smallest number of records of a checkpoint.

    >>> fewest_records(20)
    800
    """
    return round(LOOSE * FEWEST_BLOCKS * batch_size / SHARES[-1])


def roomy_records(batch_size: int) -> int:
    """Return the number of records above which held-out figures are not low for lack of records.

    With fewer, the batches of a block are much alike. With the true critic InfoNCE finds 0.54 of 1
    nat with 2 batches in a block, 0.75 with 4, and 0.88 with 10.

    >>> roomy_records(20)
    4000
    """
    return round(ROOMY * FEWEST_BLOCKS * batch_size / SHARES[-1])


def checkpoint_parts(
    task: Task, params: Params, data: Dataset, how: Gathering, *, seed: int
) -> PairSplit:
    """Return pairs at a checkpoint to fit, to stop and to report, from disjoint records.

    If a batch's gradient is the mean of its records' gradients, each record's gradient is computed
    once, and pairs are fresh batches at every draw. Otherwise (a defense of the update, batch
    normalisation in train mode) ``how.pairs`` batches are gathered.

    Args:
        task: the model and its loss, which stay unchanged.
        params: all trainable parameters at the checkpoint, by name.
        data: private records.
        how: settings of the gathering.
        seed: seed of the split; the same seed gives the same split at every checkpoint.

    Raises:
        InputError: too few records, or an unknown layer or module.

    References:
        Privacy Tokens, section 4.2.1, which evaluates on 200 batches of training records.
    """
    check_names(task, data.x, how.features, list(how.layers))
    rows = _dealt(data, how.batch_size, seed)
    task = _without_running_statistics(task)
    if _are_means(how.defense or none()) and not records_interact(task, params, data.x, data.y):
        return PairSplit(*_pools(task, params, data, how, rows, seed))
    return PairSplit(*_gathered(task, params, data, how, rows, seed))


def oracle_parts(
    task: Task, params: Params, data: Dataset, how: Gathering, *, seed: int
) -> tuple[PairSplit, list[PairSplit]]:
    """Return pairs at a checkpoint as ``checkpoint_parts`` does, and those that an oracle computes.

    An oracle knows the model, the records of each batch and the defense, and not what the defense
    drew. It computes the gradients without the defense, and under the defense with draws of its
    own. Besides the sketches of long gradients it reads as many of their coordinates as they are.

    Args:
        task: as for ``checkpoint_parts``, like all other arguments.
        params: all trainable parameters at the checkpoint, by name.
        data: private records.
        how: settings of the gathering.
        seed: seed of the split and of all draws.

    Returns:
        The pairs as sent, and the same pairs for each way of the oracle.
    """
    how = replace(how, chosen=how.width)
    sent = checkpoint_parts(task, params, data, how, seed=seed)
    if _are_means(how.defense or none()):
        return sent, [sent]
    rows = _dealt(data, how.batch_size, seed)
    task = _without_running_statistics(task)
    own = derive(seed, "oracle")
    plain = PairSplit(*_gathered(task, params, data, replace(how, defense=None), rows, seed))
    return sent, [plain, PairSplit(*_gathered(task, params, data, how, rows, seed, noise=own))]


def _are_means(defense: Defense) -> bool:
    """Return whether the gradient of a batch stays the mean of its records' gradients."""
    return defense.update.is_identity and defense.per_example is None


def _without_running_statistics(task: Task) -> Task:
    """Return the task without running averages of normalisations in train mode; same outputs.

    In train mode they normalise only by the batch. Averages that a pass writes would make trials
    depend on each other, so gradients refuse them.
    """
    if not any(map(_keeps_averages, task.model.modules())):
        return task
    own = private(task, dict(task.model.named_parameters()))
    for module in filter(_keeps_averages, own.model.modules()):
        module.track_running_stats = False
        module.running_mean = module.running_var = module.num_batches_tracked = None
    return own


def _keeps_averages(module: nn.Module) -> TypeGuard[nn.modules.batchnorm._NormBase]:
    norm = isinstance(module, nn.modules.batchnorm._NormBase)
    return norm and module.training and bool(module.track_running_stats)


def _dealt(data: Dataset, batch_size: int, seed: int) -> list[Tensor]:
    need = fewest_records(batch_size)
    require(
        len(data) >= need,
        f"there are {len(data)} private records; batches of {batch_size} need {need} or more: "
        "bring more records, or take smaller batches",
    )
    owners = np.arange(len(data)) if data.users is None else data.users.cpu().numpy()
    ends = np.rint(np.cumsum(SHARES) * len(data)).astype(np.int64)
    parts = dealt(owners, ends, rng=stream(seed, "pairs", "parts"))
    need = LOOSE * FEWEST_BLOCKS * batch_size
    for part in parts:
        require(
            len(part) >= need,
            f"a part of the pairs has {len(part)} records, as some users have most of them; "
            f"batches of {batch_size} need {need}: take smaller batches",
        )
    return [torch.from_numpy(part).to(data.y.device) for part in parts]


def _pools(
    task: Task, params: Params, data: Dataset, how: Gathering, rows: Sequence[Tensor], seed: int
) -> Iterator[PooledPairs]:
    factoring = Factoring.start(task, params, data.x[:2], data.y[:2], layers=list(how.layers))
    sketches = Sketches(how.width, seed, how.chosen)
    for own in rows:
        kept: list[Pairs] = []
        most = len(own)
        for chunk in slices(len(own), 256):
            if chunk.start >= most:
                break
            part = data.rows(own[chunk])
            found = factoring(params, part.x, part.y)
            gradients = {
                name: torch.cat([sketches(name, grads) for grads in one.chunks()])
                for name, one in found.items()
            }
            features = record_features(task, params, part.x, how.features)
            kept.append(Pairs(sketches("features", features), gradients))
            most = min(most, MOST_BYTES // len(rows) // kept[0].bytes_of_each)
            need = LOOSE * FEWEST_BLOCKS * how.batch_size
            require(
                most >= need,
                f"{most} records' features and gradients of {len(how.layers)} layers fit into "
                f"memory; batches of {how.batch_size} need {need}: watch fewer layers, or keep a "
                "smaller width",
            )
        yield PooledPairs(_joined(kept), how.batch_size)


def _gathered(
    task: Task,
    params: Params,
    data: Dataset,
    how: Gathering,
    rows: Sequence[Tensor],
    seed: int,
    *,
    noise: int | None = None,
) -> Iterator[FixedPairs]:
    """Yield the parts; ``noise`` is the seed of the defense's draws, by default ``seed``."""
    sketches, defense = Sketches(how.width, seed, how.chosen), how.defense or none()
    noise = seed if noise is None else noise
    known = {one.name: one.parameters for one in walk(task, data.x[:2])}
    names = {name: known[name] for name in how.layers}
    for number, (own, share) in enumerate(zip(rows, SHARES, strict=True)):
        count = max(8, round(share * how.pairs))
        blocks = blocks_of(len(own), how.batch_size)
        each = -(-count // blocks)
        drawn = _batches(own, blocks, each, how.batch_size, stream(seed, "pairs", number))
        kept = []
        for trials, grads in iter_gradients(
            task,
            params,
            data,
            drawn,
            per_example=defense.per_example,
            rngs=lambda place, number=number: [  # type: ignore[misc]
                torch_stream(noise, "record", number, place, one, device=data.y.device)
                for one in range(how.batch_size)
            ],
            max_bytes=MAX_BYTES,
        ):
            places = range(trials.start, trials.stop)
            rngs = [torch_stream(noise, "noise", number, p, device=data.y.device) for p in places]
            sent = defense.update(grads, rngs)
            gradients = {
                name: sketches(name, torch.cat([sent[key].flatten(1) for key in keys], dim=1))
                for name, keys in names.items()
            }
            features = batch_features(task, params, data.x, drawn[trials], how.features)
            kept.append(Pairs(sketches("features", features), gradients))
        yield FixedPairs(_joined(kept), block=each)


def _batches(
    own: Tensor, blocks: int, each: int, batch_size: int, rng: np.random.Generator
) -> Tensor:
    """Return the rows of ``each`` batches per block of records, in the order of blocks."""
    parts = torch.from_numpy(rng.permutation(len(own))).to(own.device).tensor_split(blocks)
    picked = [
        torch.from_numpy(rng.choice(len(part), batch_size, replace=False)).to(own.device)
        for part in parts
        for _ in range(each)
    ]
    placed = [own[parts[number // each]][one] for number, one in enumerate(picked)]
    return torch.stack(placed)


def _joined(kept: Sequence[Pairs]) -> Pairs:
    gradients = {
        name: torch.cat([one.gradients[name] for one in kept]) for name in kept[0].gradients
    }
    return Pairs(torch.cat([one.features for one in kept]), gradients)
