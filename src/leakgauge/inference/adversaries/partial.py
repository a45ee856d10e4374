"""Restrict an attack to a part of each gradient: some layers, or a few coordinates."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from leakgauge.core.checks import require, require_count, require_known
from leakgauge.core.rng import stream
from leakgauge.core.types import Grads
from leakgauge.gradients.flattening import flat_leaf
from leakgauge.inference.adversaries.adversary import Adversary, Attack
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.inference.adversaries.views import PartialView
from leakgauge.results.statistics import Floats

COORDINATES = "coordinates"
"""Name of the only leaf of a gradient that is reduced to random coordinates."""


@dataclass(frozen=True)
class Selection:
    """Some parameters of a gradient, or random coordinates of them.

    Attributes:
        parameters: names of the observed parameters.
        coordinates: number of observed coordinates, the same ones in every gradient; None for all.
        seed: seed of the drawn coordinates.

    References:
        Mo et al., 2021, Figure 6: 48 random coordinates of each layer.

    >>> grads = {"w": torch.ones(3, 2, 2), "b": torch.ones(3, 2)}
    >>> {name: list(leaf.shape) for name, leaf in Selection(("b",))(grads).items()}
    {'b': [3, 2]}
    >>> list(Selection(("w", "b"), coordinates=5)(grads)["coordinates"].shape)
    [3, 5]
    """

    parameters: tuple[str, ...]
    coordinates: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        require(len(self.parameters) > 0, "a part of a gradient has no parameters; name one")
        if self.coordinates is not None:
            require_count(self.coordinates, "number of coordinates")

    def __call__(self, grads: Grads) -> Grads:
        """Return the observed part of gradients with leaves ``[n, *p]``.

        Raises:
            InputError: a parameter is unknown.
        """
        for name in self.parameters:
            require_known(name, grads, f"the gradient has no parameter {name!r}")
        seen = {name: grads[name] for name in self.parameters}
        if self.coordinates is None:
            return seen
        return {COORDINATES: self._drawn(seen, self.coordinates)}

    def _drawn(self, seen: Grads, count: int) -> torch.Tensor:
        flat = [flat_leaf(leaf) for leaf in seen.values()]
        total = sum(leaf.shape[1] for leaf in flat)
        rng = stream(self.seed, "coordinates", *self.parameters)
        chosen = np.sort(rng.choice(total, size=min(count, total), replace=False))
        parts, first = [], 0
        for leaf in flat:
            here = chosen[(first <= chosen) & (chosen < first + leaf.shape[1])] - first
            parts.append(leaf[:, torch.from_numpy(here).to(leaf.device)])
            first += leaf.shape[1]
        return torch.cat(parts, dim=1)


@dataclass(frozen=True)
class PartialAttack:
    """An attack that observes the gradients of some parameters only.

    If the wrapped attack has a ``view``, all parts of one shadow share one pass over its gradients.

    Attributes:
        attack: any attack on gradients without candidates.
        parameters: names of the observed parameters.
        coordinates: number of observed random coordinates; None for all.
        seed: seed of the drawn coordinates.

    References:
        Mo et al., 2021, section 6.2.
    """

    attack: Attack
    parameters: tuple[str, ...]
    coordinates: int | None = None
    seed: int = 0

    @property
    def name(self) -> str:
        """The name of the wrapped attack."""
        return self.attack.name

    @property
    def selection(self) -> Selection:
        """The observed part."""
        return Selection(self.parameters, self.coordinates, self.seed)

    @property
    def view(self) -> PartialView | None:
        """Function from gradients to features; None if the wrapped attack has none."""
        view = getattr(self.attack, "view", None)
        return None if view is None else PartialView(view, self.selection)

    def fit(
        self, shadow: Shadow, log_prior: Floats, *, rng: np.random.Generator
    ) -> "FittedPartialAttack":
        """Fit the attack on a shadow whose gradients are cut to the part."""
        cut = replace(shadow, sees=self.selection).sharing(shadow.shared)
        return FittedPartialAttack(self.selection, self.attack.fit(cut, log_prior, rng=rng))


@dataclass(frozen=True, eq=False)
class FittedPartialAttack:
    """A fitted ``PartialAttack``.

    Attributes:
        selection: the observed part of a gradient.
        adversary: adversary of that part.
    """

    selection: Selection
    adversary: Adversary

    @property
    def details(self) -> str:
        """The details of the wrapped adversary."""
        return self.adversary.details

    def log_posterior(self, seen: Grads) -> Floats:
        """Return log posteriors ``[n, m]`` for whole gradients with leaves ``[n, *p]``."""
        return self.adversary.log_posterior(self.selection(seen))
