"""Random generators derived from a seed and a name, and torch's global ones for a while."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def own_randomness(seed: int, device: torch.device | str) -> Iterator[None]:
    """Seed torch's global generators inside the block, and restore them after it.

    Weights and dropout of torch's own modules draw only from these. Generators of other devices
    stay unchanged: ``torch.manual_seed`` would seed them too, and without a GPU each of its calls
    keeps a stack trace for the day when one is found.
    """
    where = torch.device(device)
    on_cuda = where.type == "cuda"
    with torch.random.fork_rng([where] if on_cuda else []):
        torch.default_generator.manual_seed(seed)
        if on_cuda:
            with torch.cuda.device(where):
                torch.cuda.manual_seed(seed)
        yield
