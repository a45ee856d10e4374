"""Versions of Python and of the packages that compute figures."""

import functools
from importlib.metadata import version
from platform import python_version


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that compute figures, by name."""
    return dict(_found())


@functools.cache
def _found() -> dict[str, str]:
    packages = ("leakgauge", "torch", "numpy", "scikit-learn", "scipy", "pillow")
    return {"python": python_version(), **{name: version(name) for name in packages}}
