"""DAGER as a method of ``leakgauge invert``: sequences of tokens from the update of each client."""

import time
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.core.checks import require, require_count, require_positive
from leakgauge.core.types import Task
from leakgauge.inversion.methods import DAGER, TOKENS, Method, Traits
from leakgauge.inversion.observed import AttackOptions, Knowledge, ObservedUpdates, Reconstruction
from leakgauge.inversion.text.endings import UNKNOWN
from leakgauge.inversion.text.sequences import MOST, TOLERANCE, dager


@dataclass(frozen=True)
class Dager(Method):
    """Reads token sequences from the spans of two attention layers.

    Args:
        tolerance: largest distance from a span, relative to a vector's length.
        most: largest number of sequences to try at once.
        noise: standard deviation of the noise in each entry of an update, if the attacker knows it.
        padding: token to ignore; -1 for none.

    References:
        Petrov et al., DAGER: Exact Gradient Inversion for Large Language Models, NeurIPS 2024.

    >>> Dager(most=100).traits.needs
    'tokens'
    """

    traits: ClassVar[Traits] = Traits(
        does="reads tokens from the spans of two attention layers.", needs=TOKENS, uses_labels=False
    )
    tolerance: float = TOLERANCE
    most: int = MOST
    noise: float = 0.0
    padding: int = -1

    def __post_init__(self) -> None:
        require_positive(self.tolerance, "tolerance")
        require_count(self.most, "most")
        require(self.noise >= 0, f"noise is {self.noise:g}; expected 0 or more")

    def rebuild(
        self, task: Task, seen: ObservedUpdates, known: Knowledge, options: AttackOptions
    ) -> Reconstruction:
        """Return the sequences ``[T, B, L]``; ``UNKNOWN`` stands for tokens that were not found."""
        began = time.perf_counter()
        batch, length = seen.shape
        rebuilt, notes, stopped = [], [], []
        for target in range(len(next(iter(seen.grads.values())))):
            # Labels of a causal model are the tokens themselves; only classes are knowledge.
            classes = None if known.labels is None else known.labels[target]
            found = dager(
                task,
                seen.params,
                {name: leaf[target : target + 1] for name, leaf in seen.grads.items()},
                length=length,
                labels=classes if classes is not None and classes.dim() == 1 else None,
                tolerance=self.tolerance,
                noise=self.noise,
                most=self.most,
                padding=None if self.padding < 0 else self.padding,
            )
            stopped.append(float(bool(found.stopped)))
            if found.stopped:
                notes.append(f"{DAGER}: {found.stopped}")
            rebuilt.append(filled(found.sequences, batch, length))
        x = torch.stack(rebuilt).to(next(iter(seen.params.values())).device)
        seconds = time.perf_counter() - began
        direct = Reconstruction.direct(x, seconds=seconds, notes=tuple(dict.fromkeys(notes)))
        return replace(direct, stopped=torch.tensor(stopped, dtype=torch.float64))


def filled(sequences: tuple[tuple[int, ...], ...], batch: int, length: int) -> Tensor:
    """Return the first sequences as a batch ``[B, L]`` int64, with ``UNKNOWN`` where one ends.

    >>> filled(((5, 6), (7,)), 3, 2).tolist()
    [[5, 6], [7, -1], [-1, -1]]
    """
    x = torch.full((batch, length), UNKNOWN, dtype=torch.int64)
    for row, one in zip(x, sequences, strict=False):
        row[: len(one)] = torch.tensor(one[:length], dtype=torch.int64)
    return x
