"""Reduced gradients of shadow users, from which the attacks on users learn."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leakgauge.core.types import Grads
from leakgauge.inference.adversaries.pca_forest import Projection
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.inference.adversaries.views import Flat
from leakgauge.training.observation import sent_gradients

Floats = NDArray[np.float64]

Ints = NDArray[np.int64]

AXES_FROM = 512
"""Number of batches behind the principal axes; their gradients are held at once."""

LEAST_EACH = 4
"""Least number of batches of each shadow user."""


@dataclass(frozen=True, eq=False)
class UserExamples:
    """Reduced gradients of shadow batches, each of one user.

    Attributes:
        seen: as they are sent ``[n, k]``; clean, without the defense's Gaussian noise ``[n, k]``.
        user: ``[n]``.
        resampling: B over the mean number of a user's records: what drawing them anew changes
            in a batch, relative to what it changes in the user's mean.
    """

    seen: Floats
    clean: Floats
    user: Ints
    resampling: float

    def without(self, users: Ints) -> "UserExamples":
        """Return the examples without some users."""
        rest = ~np.isin(self.user, users)
        return replace(self, seen=self.seen[rest], clean=self.clean[rest], user=self.user[rest])


def observe(
    shadow: Shadow, *, batches: int, components: int, rng: np.random.Generator
) -> tuple[Projection, UserExamples]:
    """Return principal axes and bootstrapped shadow batches on them, as many of each user.

    There are ``batches``, or ``LEAST_EACH`` a user where users are many: how much a user's
    gradients vary shows on no fewer. The axes are learned without the Gaussian noise of the
    shadow's defense.
    """
    rows, user = shadow.draw(max(batches, LEAST_EACH * shadow.values), rng=rng)
    clean = replace(shadow, defense=shadow.defense.without_noise())
    first = torch.cat([Flat()(grads) for grads in _gradients(clean, rows[:AXES_FROM])])
    view = Projection.learn(first, components, rng=rng)
    # the view flattens what it is given, one leaf or many; in parts, since it also makes copies
    again = ({"": part} for part in torch.split(first, 64))
    features = map(view, chain(again, _gradients(clean, rows[AXES_FROM:])))
    reduced = torch.cat(list(features)).cpu().numpy()
    noisy = clean.defense != shadow.defense
    seen = reduced_gradients(view, shadow, rows) if noisy else reduced
    records = len(shadow.data) / shadow.values
    return view, UserExamples(seen, reduced, user, shadow.batch_size / records)


def _gradients(shadow: Shadow, rows: Ints) -> Iterator[Grads]:
    """The gradients that clients send; a learned defense gets no user, as it knows none."""
    if len(rows) == 0:
        return iter(())
    return sent_gradients(
        shadow.task,
        shadow.params,
        shadow.data,
        torch.from_numpy(rows).to(shadow.data.y.device),
        defense=shadow.defense,
        noise_seed=shadow.noise_seed,
        max_bytes=shadow.max_bytes,
    )


def reduced_gradients(view: Callable[[Grads], Tensor], shadow: Shadow, rows: Ints) -> Floats:
    """Return the gradients of batches ``rows [n, B]`` after ``view``: ``[n, k]``."""
    reduced: Floats = torch.cat([view(grads) for grads in _gradients(shadow, rows)]).cpu().numpy()
    return reduced
