"""White noise in a defense, as an adversary that knows the defense sees through it."""

import math
from dataclasses import replace

from leakgauge.defenses import Chain, Defense, GaussianNoise, Identity, Transform


def noise_std(defense: Defense) -> float:
    """Of each coordinate of the update, where Gaussian noise is added; 0 where none is.

    >>> from leakgauge.defenses import dpsgd, sign
    >>> noise_std(dpsgd(clip=2.0, noise=0.1, batch_size=16)), noise_std(sign())
    (0.025, 0.0)
    """
    return math.sqrt(_variance(defense.update))


def noiseless(defense: Defense) -> Defense:
    """The same defense without its Gaussian noise.

    >>> from leakgauge.defenses import dpsgd
    >>> noiseless(dpsgd(clip=2.0, noise=0.1, batch_size=16)).update
    Identity()
    """
    return replace(defense, update=_without(defense.update))


def _variance(update: Transform) -> float:
    if isinstance(update, Chain):
        return sum(map(_variance, update.transforms))
    return update.std**2 if isinstance(update, GaussianNoise) else 0.0


def _without(update: Transform) -> Transform:
    if isinstance(update, Chain):
        return Chain(tuple(map(_without, update.transforms)))
    return Identity() if isinstance(update, GaussianNoise) else update
