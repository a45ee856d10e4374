"""Fixtures of the tests of other packages."""

from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec

import pytest


@pytest.fixture(autouse=True, scope="session")
def _divergences_once() -> Iterator[None]:
    """Let Opacus' accountants compute a step's divergence of an order once for all deltas."""
    if find_spec("opacus") is None:
        yield
        return
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opacus.accountants.analysis import rdp

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rdp, "_compute_rdp", lru_cache(maxsize=2**16)(rdp._compute_rdp))
        yield
