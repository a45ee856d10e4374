"""Refuses tensors by name that do not fit others, or hold no plain numbers."""

from leakgauge.core.checks import require, require_known
from leakgauge.core.types import Params, all_finite, require_plain


def check_names(leaves: Params, wanted: Params, what: str, whole: str) -> None:
    """Refuse leaves with other names or shapes than the wanted ones."""
    for name in wanted:
        require_known(name, leaves, f"{what} has no {name!r}, which {whole} has")
    check_shapes(leaves, wanted, what, whole)


def check_shapes(leaves: Params, wanted: Params, what: str, whole: str) -> None:
    """Refuse leaves that are not among the wanted ones or have other shapes."""
    for name, leaf in leaves.items():
        require_known(name, wanted, f"{what} has {name!r}, not in {whole}")
        came, expected = list(leaf.shape), list(wanted[name].shape)
        require(came == expected, f"{what}: {name!r} is {came}; expected {expected} as {whole}")


def check_numbers(leaves: Params, what: str) -> None:
    """Refuse leaves that are no finite floats.

    Raises:
        InputError: one is not.
    """
    for name, leaf in leaves.items():
        require(leaf.is_floating_point(), f"{what}: {name!r} is {leaf.dtype}; expected floats")
        require_plain(leaf, f"{what}: {name!r}")
        require(
            all_finite([leaf]),
            f"{what}: {name!r} is not finite (NaN or infinity); did the training diverge?",
        )
