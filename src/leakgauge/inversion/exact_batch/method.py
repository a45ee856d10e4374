"""Exact recovery of batches as a method of ``leakgauge invert``."""

import time
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.core.checks import require, require_count
from leakgauge.core.precision import precision_of
from leakgauge.core.rng import derive
from leakgauge.core.types import Schema, Task
from leakgauge.inversion.exact import divided
from leakgauge.inversion.exact_batch.layer import ProbedLayer, layer_before_relu
from leakgauge.inversion.exact_batch.peeling import UNKNOWN
from leakgauge.inversion.exact_batch.recovery import Recovery, recover
from leakgauge.inversion.methods import EXACT_BATCH, Method, Traits
from leakgauge.inversion.observed import (
    AttackOptions,
    Knowledge,
    ObservedUpdates,
    Reconstruction,
    RecoveredInputs,
)

SAME = 1e-3
"""Largest difference of a coordinate between two rebuilt records that are one."""


@dataclass(frozen=True)
class ExactBatch(Method):
    """Recovers whole batches from the gradient of a linear layer before a ReLU.

    It reads what enters the layer. Where the records enter it as they are, it recovers records;
    else it recovers their inputs to this layer, exact as well, with the labels, and guesses the
    records, which the inputs do not determine.

    The gradient has the rank of the batch, and a ReLU leaves zeros in it that single records
    explain. Three searches look for the inputs: linear programs for the one-hot columns of a table,
    others for inputs behind a ReLU, and sparse directions for any inputs. The gradient or its own
    zeros confirm each record by itself, and a certificate the whole batch with its labels: its own
    gradient is the received one, to rounding. Division adds the rows of a table that a unit saw
    alone.

    The search for sparse directions follows the idea of SPEAR, which samples submatrices instead.
    Confirmation of single records, linear programs and reweighted least squares are ours.

    Attributes:
        layer: name of the linear layer's module; empty for the first one with a ReLU behind it.
        rounds: number of rounds of both searches before it stops without all records.

    References:
        Dimitrov et al., SPEAR: Exact Gradient Inversion of Batches in Federated Learning, NeurIPS
        2024 (arXiv 2403.03945).

    >>> ExactBatch(rounds=5).traits.needs
    'any'
    """

    traits: ClassVar[Traits] = Traits(
        does="recovers whole batches from the gradient of a linear layer before a ReLU.",
        uses_labels=False,
    )
    layer: str = ""
    rounds: int = 60

    def __post_init__(self) -> None:
        require_count(self.rounds, "rounds")

    def rebuild(
        self, task: Task, seen: ObservedUpdates, known: Knowledge, options: AttackOptions
    ) -> Reconstruction:
        """Return the recovered records; arguments and errors as for ``Method``."""
        began = time.perf_counter()
        count, *shape = seen.shape
        guess = known.stand_in(tuple(shape))
        require(guess.is_floating_point(), f"{EXACT_BATCH} rebuilds numbers, not tokens")
        layer = layer_before_relu(task, seen.params, guess, self.layer)
        found = [
            recover(
                layer,
                {name: leaf[target] for name, leaf in seen.grads.items()},
                count,
                flags=flags_of(known.schema) if layer.reads_records else None,
                precision=precision_of(seen.grads.values()),
                seed=derive(options.seed, options.first_target + target),
                most=self.rounds,
            )
            for target in range(len(next(iter(seen.grads.values()))))
        ]
        x = guess.expand(len(found), *seen.shape).clone()
        y = torch.full(x.shape[:2], UNKNOWN, dtype=torch.int64, device=x.device)
        for target, one in enumerate(found):
            y[target, : len(one.y)] = one.y
            if layer.reads_records:
                rows = one.x.to(x).reshape(-1, *shape)
                if len(rows) < count and known.schema is not None:
                    rows = _with_others(rows, divided(task, seen, known, target))[:count]
                x[target, : len(rows)] = rows
        certified = torch.tensor([float(one.is_certified) for one in found])
        own = layer.reads_records
        return Reconstruction.direct(
            x,
            y,
            seconds=time.perf_counter() - began,
            notes=(*_notes(found, count), *([] if own else [_of_layer(layer, found, count)])),
            certified=certified if own else None,
            layer=None
            if own
            else RecoveredInputs(
                layer.name, tuple(one.x for one in found), certified, layer.inputs
            ),
        )


def _of_layer(layer: ProbedLayer, found: list[Recovery], count: int) -> str:
    """Return what was recovered in place of records."""
    inputs, records = sum(len(one.x) for one in found), count * len(found)
    return (
        f"{EXACT_BATCH}: records do not enter the layer {layer.name!r} as they are, so it recovers "
        f"their {layer.weight.shape[1]} inputs to this layer ({inputs} of {records} records), and "
        "shows a guess in place of each record"
    )


def _with_others(x: Tensor, candidates: Tensor) -> Tensor:
    """Return records and the candidates ``[k, D]`` that are none of them."""
    if not len(x):
        return candidates
    gaps = torch.cdist(candidates, x, p=float("inf")).amin(dim=1)
    return torch.cat([x, candidates[gaps > SAME]])


def flags_of(schema: Schema | None) -> Tensor | None:
    """Return the positions of a table's flags ``[k]``, 0 or 1 each; None without a table.

    They are the one-hot columns of categories, and the marks of missing numbers.
    """
    if schema is None:
        return None
    flags: list[int] = []
    for one in schema.columns:
        first = one.start if one.kind == "category" else one.stop - int(one.missing)
        flags += range(first, one.stop)
    return torch.tensor(flags, dtype=torch.int64)


def _notes(found: list[Recovery], count: int) -> tuple[str, ...]:
    """Return why records are missing, one sentence for each reason."""
    noisy = sum(one.is_noisy for one in found)
    few = [one for one in found if not one.is_noisy and one.rank < count]
    open_ = [one for one in found if not one.is_noisy and len(one.x) < one.rank]
    of = f"of {len(found)} updates"
    notes = []
    if noisy:
        notes.append(
            f"{EXACT_BATCH}: {noisy} {of} are not the plain gradient of {count} records (their "
            "rank is higher): noise, pruning or several steps may leave single records at most"
        )
    if few:
        notes.append(
            f"{EXACT_BATCH}: {len(few)} {of} show fewer than {count} records: some are equal, "
            "depend on the others, or have a gradient below rounding"
        )
    if open_:
        notes.append(
            f"{EXACT_BATCH}: the search ended in {len(open_)} {of} before all records were found; "
            f"{EXACT_BATCH}:rounds=N searches longer"
        )
    return tuple(notes)
