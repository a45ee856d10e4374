"""Arithmetic on one thread in full precision, so that figures do not depend on the machine."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import torch
from threadpoolctl import ThreadpoolController

from leakgauge.core.precision import full_precision


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch and BLAS on one thread inside the block, and restore their threads after it.

    Threads split sums, so the last bits of a sum depend on the number of threads; a forest or an
    argmax turns them into visible differences. leakgauge spreads work over processes instead. A
    GPU multiplies in ``full_precision``.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with full_precision(), _controller(len(sys.modules)).limit(limits=1):
            yield
    finally:
        torch.set_num_threads(before)


@lru_cache(maxsize=1)
def _controller(modules: int) -> ThreadpoolController:
    """Return the controller of the loaded libraries; new modules may bring new ones.

    To look for them takes up to 20 ms in a process with hundreds of libraries.
    """
    return ThreadpoolController()
