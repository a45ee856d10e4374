"""Build defenses in one call, for batches of any size."""

from leakgauge.defenses import (
    DPSGD,
    VIB,
    Clip,
    Defense,
    Noise,
    Perturb,
    Prune,
    Quantise,
    Sign,
)


def prune(rate: float = 0.99, whole: bool = False) -> Defense:
    return Prune(rate, whole=whole).build(batch_size=1)


def sign() -> Defense:
    return Sign().build(batch_size=1)


def perturb(*sizes: float, **settings) -> Defense:
    return Perturb(*sizes, **settings).build(batch_size=1)


def vib(beta: float = 0.01) -> Defense:
    return VIB(beta).build(batch_size=1)


def dpsgd(clip: float = 2.0, noise: float = 0.1, *, batch_size: int) -> Defense:
    return DPSGD(clip, noise).build(batch_size=batch_size)


def clip(l2: float) -> Defense:
    return Clip(l2).build(batch_size=1)


def gaussian(std: float) -> Defense:
    return Noise(std).build(batch_size=1)


def quantise(levels: int) -> Defense:
    return Quantise(levels).build(batch_size=1)
