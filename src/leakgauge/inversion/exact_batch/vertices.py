"""Records of a table as vertices: linear programs over the rows of a gradient.

All one-hot columns of a record lie between 0 and 1, and each record is a combination of the rows R
with 1 at the bias. A linear objective is largest at a vertex of this set, and a record is one, for
its one-hot columns are vertices of the cube. So linear programs with random objectives find
records, unless the records' one-hot columns depend on each other.
"""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.random import Generator
from scipy.optimize import linprog
from torch import Tensor

from leakgauge.inversion.exact_batch.factors import FactoredGradient

SLACK = 1e-3
"""How far a flag may lie outside 0 to 1, since the rows are rounded."""

WHOLE = 0.05
"""Largest distance of a flag from 0 or 1 at a vertex that may be a record."""


def vertices(factors: FactoredGradient, flags: Tensor, rng: Generator) -> Iterator[Tensor | None]:
    """Yield candidate records ``[D]`` without end; None where a program gave none or a known one.

    Args:
        factors: the factors of the gradient.
        flags: positions of the one-hot columns ``[k]``.
        rng: source of the objectives.
    """
    rows = factors.right.T.cpu().numpy()
    rows = rows / np.abs(rows).max(axis=0)
    at, bias = flags.cpu().numpy(), rows[-1:]
    hot = rows[at]
    live = hot[np.abs(hot).max(axis=1) > 1e-9]
    sides = np.concatenate([np.full(len(live), 1 + SLACK), np.full(len(live), SLACK)])
    seen: set[bytes] = set()
    while True:
        found = linprog(
            -rng.normal(size=len(live)) @ live,
            A_ub=np.concatenate([live, -live]),
            b_ub=sides,
            A_eq=bias,
            b_eq=[1.0],
            bounds=(None, None),
            method="highs-ds",
        )
        values = None if found.x is None else hot @ found.x
        if values is None or np.abs(values - values.round()).max() > WHOLE:
            yield None
            continue
        whole = values.round()
        if whole.tobytes() in seen:
            yield None
            continue
        seen.add(whole.tobytes())
        both, wanted = np.concatenate([hot, bias]), np.append(whole, 1.0)
        record = rows[:-1] @ np.linalg.lstsq(both, wanted, rcond=None)[0]
        record[at] = whole
        yield torch.from_numpy(record).to(factors.right)
