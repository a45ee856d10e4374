"""A defense as the mechanism to audit: what a client's filter claims, and its releases."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from leakgauge.core.checks import require
from leakgauge.core.types import Grads
from leakgauge.defenses.catalog import DEFENSES
from leakgauge.defenses.claims import Claim, Statement, statement_of, with_server_noise
from leakgauge.defenses.defense import Defense
from leakgauge.gradients.flattening import flatten, norms
from leakgauge.guarantee.laplace import LaplaceRatio
from leakgauge.guarantee.mechanism import DPSGDMechanism
from leakgauge.guarantee.shown import GAUSSIAN, LAPLACE, OTHER
from leakgauge.guarantee.spec import CLIP
from leakgauge.guarantee.statistic import LikelihoodRatio, Statistic
from leakgauge.guarantee.theory import PairTheory, no_theory, sparse_theory, theory_of
from leakgauge.privacy.promises import CLIENT, RECORD, Neighbours

BATCH = 1
"""Records of an audited release; the gradient of one record is the client's update."""


@dataclass(frozen=True)
class FilterMechanism:
    """Releases of a defense, from the gradient of one record or the mean of several.

    Attributes:
        defense: clips each record's gradient, the mean, or both, and may add noise.
        stated: what it claims, and the mechanism that it is.
    """

    defense: Defense
    stated: Statement

    def __call__(self, grads: Grads, generator: torch.Generator) -> Grads:
        """Return one release, leaves ``[*p]``, of gradients ``[B, *p]``."""
        return {name: leaf[0] for name, leaf in self.several(grads, [generator]).items()}

    def several(self, grads: Grads, generators: Sequence[torch.Generator]) -> Grads:
        """Return one release for each generator, leaves ``[n, *p]``."""
        n = len(generators)
        means = {
            name: leaf.mean(dim=0, keepdim=True).expand(n, *leaf.shape[1:]).clone()
            for name, leaf in self.clipped(grads).items()
        }
        return self.defense.update(means, generators)

    def clipped(self, grads: Grads) -> Grads:
        """Return per-example gradients ``[B, *p]`` as they go into the mean."""
        each = self.defense.per_example
        return grads if each is None else each(grads, [])

    def centre(self, means: Grads) -> Grads:
        """Return releases of means ``[m, *p]`` without their randomness."""
        return self.defense.update.centre(means)

    @property
    def sparse(self) -> bool:
        """Whether it is the sparse vector technique."""
        return self.stated.is_private and self.stated.mechanism is None

    @property
    def law(self) -> str:
        """The law of its noise; Gaussian noise needs no clip."""
        if self.sparse:
            return LAPLACE
        return GAUSSIAN if self.defense.noise_std > 0 else OTHER

    @property
    def clip(self) -> float:
        """The clip for the search of a record; that of DP-SGD's default where it clips none."""
        own = self.largest_norm
        return CLIP if own is None else own

    @property
    def largest_norm(self) -> float | None:
        """The largest norm that passes; None where it clips none."""
        parts = (self.defense.per_example, *self.defense.update.parts)
        clips = (None if part is None else part.clip_norm for part in parts)
        return next((clip for clip in clips if clip is not None), None)

    @property
    def dpsgd(self) -> DPSGDMechanism | None:
        """The DP-SGD that it is for one record; None unless it clips and adds Gaussian noise."""
        release = self.stated.mechanism
        return None if release is None else DPSGDMechanism(release.clip, release.noise_std)

    @property
    def unit(self) -> str:
        """Who is protected: a record where each is clipped, else the client."""
        release = self.stated.mechanism
        return str(RECORD if release is not None and release.batch is not None else CLIENT)

    def likelihood_ratio(self) -> Statistic:
        """Return the likelihood ratio of its noise."""
        one = self.stated.settings
        return LaplaceRatio(2 * one.gamma / one.noise) if self.sparse else LikelihoodRatio()

    def theory(
        self, expected: Grads, *, delta: float, attributes: int, near: Neighbours, releases: int
    ) -> PairTheory:
        """Return what follows for releases around ``expected``, leaves ``[m, *p]``."""
        if self.dpsgd is not None:
            apart = norms({name: leaf[1:] - leaf[:1] for name, leaf in expected.items()})
            return theory_of(
                self.dpsgd,
                distance=float(apart.max()),
                delta=delta,
                attributes=attributes,
                near=near,
                releases=releases,
                whole_update=self.unit == CLIENT,
            )
        if not self.sparse:
            return no_theory(delta, near, releases)
        flat = flatten(expected).double().cpu().numpy()
        shares = np.asarray((flat[1:] - flat[:1]) / (2 * self.stated.settings.gamma), np.float64)
        release = self.stated.sparse(flat.shape[1])
        return sparse_theory(release, shares, delta=delta, near=near, releases=releases)


def is_filter(mechanism: str) -> bool:
    """Return whether a mechanism is a defense with its settings, such as ``local-dp:clip=1,...``.

    ``dpsgd`` alone is DP-SGD with the clip and the noise of the audit's own settings.

    >>> is_filter("svt"), is_filter("dpsgd:clip=1,noise=1"), is_filter("dpsgd")
    (True, True, False)
    """
    word, colon, _ = mechanism.partition(":")
    return word.strip() in DEFENSES and (bool(colon) or word.strip() != "dpsgd")


def filter_of(mechanism: str, server_noise: float | None = None) -> FilterMechanism:
    """Return the releases of a defense.

    Args:
        mechanism: as ``parse_defense`` reads it.
        server_noise: noise multiplier of the server; see ``with_server_noise``.

    Raises:
        InputError: it is not known, changes nothing that is sent, or no server adds noise after it.
    """
    defense = with_server_noise(mechanism, batch_size=BATCH, multiplier=server_noise)
    require(
        defense.task is None and defense.learn is None,
        f"--mechanism {mechanism} changes the model or learns from public gradients, so it is no "
        "filter of what is sent; name another one",
    )
    return FilterMechanism(
        defense, statement_of(mechanism, batch_size=BATCH, server_noise=server_noise)
    )


def claim_of(mechanism: str) -> Claim | None:
    """Return what the parameters of a filter claim; None for another mechanism or no claim."""
    return statement_of(mechanism, batch_size=BATCH).claim if is_filter(mechanism) else None
