"""Arithmetic on one thread, so that figures do not depend on the number of cores."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch and BLAS on one thread inside the block, and restore their threads after it.

    Threads split sums, so the last bits of a sum depend on the number of threads; a forest or an
    argmax turns them into visible differences. leakgauge spreads work over processes instead.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)
