"""A defense as the mechanism to audit: what a client's filter claims, and its releases."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from leakgauge.core.checks import require
from leakgauge.core.types import Grads
from leakgauge.defenses import Defense, parse_defense
from leakgauge.defenses.catalog import DEFENSES
from leakgauge.defenses.claims import Claim, statement_of
from leakgauge.guarantee.mechanism import DPSGDMechanism

BATCH = 1
"""Records of an audited release; the gradient of one record is the client's update."""


@dataclass(frozen=True)
class FilterMechanism:
    """Releases of a defense, from the gradient of one record or the mean of several.

    Attributes:
        defense: clips each record's gradient, the mean, or both, and adds noise.
    """

    defense: Defense

    def __call__(self, grads: Grads, generator: torch.Generator) -> Grads:
        """Return one release, leaves ``[*p]``, of gradients ``[B, *p]``."""
        return {name: leaf[0] for name, leaf in self.several(grads, [generator]).items()}

    def several(self, grads: Grads, generators: Sequence[torch.Generator]) -> Grads:
        """Return one release for each generator, leaves ``[n, *p]``."""
        each = self.defense.per_example
        clipped = grads if each is None else each(grads, [])
        n = len(generators)
        means = {
            name: leaf.mean(dim=0, keepdim=True).expand(n, *leaf.shape[1:]).clone()
            for name, leaf in clipped.items()
        }
        return self.defense.update(means, generators)


def is_filter(mechanism: str) -> bool:
    """Return whether a mechanism is a defense with its settings, such as ``local-dp:clip=1,...``.

    ``dpsgd`` alone is DP-SGD with the clip and the noise of the audit's own settings.

    >>> is_filter("svt"), is_filter("dpsgd:clip=1,noise=1"), is_filter("dpsgd")
    (True, True, False)
    """
    word, colon, _ = mechanism.partition(":")
    return word.strip() in DEFENSES and (bool(colon) or word.strip() != "dpsgd")


def filter_of(mechanism: str) -> FilterMechanism:
    """Return the releases of a defense."""
    return FilterMechanism(parse_defense(mechanism, batch_size=BATCH))


def follows_from(mechanism: str) -> DPSGDMechanism:
    """Return the DP-SGD that a defense is for one record.

    Raises:
        InputError: it adds no Gaussian noise to a clipped update, so there is no promise to audit.
    """
    stated = statement_of(mechanism, batch_size=BATCH)
    require(
        stated.is_private,
        f"--mechanism {mechanism} gives no differential privacy: {stated.why}; so there is no "
        "promise to audit",
    )
    release = stated.mechanism
    require(
        release is not None,
        f"--mechanism {mechanism} adds no Gaussian noise, and this audit compares with it; for "
        "what follows from its noise: leakgauge promise",
    )
    assert release is not None
    return DPSGDMechanism(release.clip, release.noise_std)


def claim_of(mechanism: str) -> Claim | None:
    """Return what the parameters of a filter claim; None for another mechanism or no claim."""
    return statement_of(mechanism, batch_size=BATCH).claim if is_filter(mechanism) else None
