"""One thread of arithmetic, so that figures do not depend on how many cores there are."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch and BLAS on one thread inside the block, and restore them after it.

    Sums are split by thread, so their last bits depend on the number of threads; a forest or an
    argmax downstream makes visible differences of them. Work is spread over processes instead.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)
