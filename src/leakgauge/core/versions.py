"""Versions of the packages that compute figures."""

from importlib.metadata import version
from platform import python_version


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that compute figures, by name."""
    packages = ("leakgauge", "torch", "numpy", "scikit-learn", "scipy", "pillow")
    return {"python": python_version(), **{name: version(name) for name in packages}}
