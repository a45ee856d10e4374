"""Random generators derived from a seed and a name; none is global."""

import hashlib

import numpy as np
import torch


def derive(seed: int, *names: str | int) -> int:
    """Return a 63-bit seed that depends on ``seed`` and on every name, in order.

    >>> derive(0, "shadow", 1) == derive(0, "shadow", 1)
    True
    >>> derive(0, "shadow", 1) == derive(0, "shadow", 2)
    False
    """
    text = "/".join([str(seed), *(f"{type(name).__name__}:{name}" for name in names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """Return a NumPy generator with its own stream for each tuple of names.

    >>> float(stream(0, "train").random()) == float(stream(0, "train").random())
    True
    """
    return np.random.default_rng(derive(seed, *names))


def torch_stream(
    seed: int, *names: str | int, device: torch.device | str = "cpu"
) -> torch.Generator:
    """Return a torch generator with its own stream for each tuple of names."""
    return torch.Generator(device=device).manual_seed(derive(seed, *names))
