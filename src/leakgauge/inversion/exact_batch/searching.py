"""Searches for the records of one gradient, each confirmed by the gradient itself."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.core.rng import stream, torch_stream
from leakgauge.inversion.exact_batch.directions import ZERO, directions
from leakgauge.inversion.exact_batch.factors import FactoredGradient
from leakgauge.inversion.exact_batch.found import ConfirmedRecords, is_spanned
from leakgauge.inversion.exact_batch.rays import rows_behind_relu
from leakgauge.inversion.exact_batch.vertices import vertices

HOPELESS = 0.1
"""Noise over the smallest singular value of the records from which nothing is searched for."""

NOISES = 3.0
"""Entries of a direction that are zero but for noise are below this multiple of it."""

IDLE = 30
"""Rounds in a row without anything new after which the search stops."""

FEWER_IDLE = 8
"""The same where the rank is below the number of records. Equal records count once there, and can
be found; others that depend on each other have no zeros to find."""

MANY_ZEROS = 1e-6
"""Largest entry that counts as zero where directions are ordered by their zeros."""


@dataclass
class Searcher:
    """Searches gradients of one batch, until its rounds are used up.

    Attributes:
        flags: positions of one-hot columns ``[k]``; None where records have none.
        behind_relu: whether inputs are at least 0, and often 0.
        seed: seed of all searches.
        idle: rounds in a row without anything new after which a search stops.
        rounds: rounds that are left.
        calls: searches that were begun.
    """

    flags: Tensor | None
    behind_relu: bool
    seed: int
    idle: int
    rounds: int
    calls: int = 0

    def records(self, factors: FactoredGradient) -> Tensor:
        """Return the records ``[k, D]`` that are found behind a gradient."""
        found = ConfirmedRecords(factors)
        if factors.rest >= HOPELESS:
            return found.records()
        self.calls += 1
        if self.behind_relu and factors.rank > 1:
            rows = rows_behind_relu(factors, stream(self.seed, "edges", self.calls))
            if len(rows):
                return (rows @ factors.right)[:, :-1]
        self._fill(found)
        return found.records()

    def _fill(self, found: ConfirmedRecords) -> None:
        factors = found.factors
        if factors.rank == 1:
            found.add(factors.records(torch.ones_like(factors.right[:, :1]))[0][0])
            return
        sparse: list[Tensor] = []
        zero = max(ZERO, NOISES * factors.rest)
        turns = directions(factors.left, torch_stream(self.seed, "starts"), zero=zero)
        programs: Iterator[Tensor | None] = iter(())
        if self.flags is not None and len(self.flags):
            programs = vertices(factors, self.flags, stream(self.seed, "objectives"))
        still, tried = 0, 0
        while self.rounds:
            self.rounds -= 1
            before, new = len(found), next(turns)
            sparse += new
            if new or before > tried:  # else it would try the same directions again
                _add_together(found, sparse)
            tried = before
            for record in itertools.islice(programs, factors.rank):
                if record is not None:
                    found.add(record)
            still = 0 if len(found) > before or new else still + 1
            if found.is_whole or still == self.idle:
                return


def _add_together(found: ConfirmedRecords, sparse: list[Tensor]) -> None:
    """Take the sparsest independent directions, and add the records that they stand for.

    A wrong direction among them spoils some records, and the gradient does not confirm these.
    """
    factors, rank = found.factors, found.factors.rank
    zeros = [int(((factors.left @ q).abs() < MANY_ZEROS).sum()) for q in sparse]
    order = sorted(range(len(sparse)), key=lambda at: -zeros[at])
    columns = list(found.columns().T)
    for at in order:
        if len(columns) == rank:
            break
        if not is_spanned(sparse[at], columns):
            columns.append(sparse[at])
    if len(columns) < rank:
        return
    for x in factors.records(torch.stack(columns, dim=1))[0]:
        if bool(x.isfinite().all()):
            found.add(x)
