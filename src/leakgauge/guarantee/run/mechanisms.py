"""The mechanisms that an audit can name, and the user's own."""

from collections.abc import Callable

import torch

from leakgauge.core.checks import InputError
from leakgauge.core.types import Grads
from leakgauge.core.user_code import function_of, one_line
from leakgauge.guarantee.mechanism import DPSGD, Mechanism
from leakgauge.guarantee.optimizer_step import OpacusMechanism


def _opacus(dpsgd: DPSGD) -> Mechanism:
    return OpacusMechanism(dpsgd.clip, dpsgd.multiplier(1))


BUILDERS: dict[str, Callable[[DPSGD], Mechanism]] = {
    "dpsgd": lambda dpsgd: dpsgd,
    "opacus": _opacus,
}
"""For each name, a function that builds the mechanism from the DP-SGD that it claims to be."""


def build_mechanism(name: str, claimed: DPSGD) -> Mechanism:
    """Return the mechanism of a name.

    Args:
        name: one of ``BUILDERS``, or the user's own as MODULE:FUNCTION.
        claimed: the DP-SGD that it claims to be.

    Raises:
        InputError: Opacus is not installed, or the user's function cannot be imported.
    """
    return BUILDERS[name](claimed) if name in BUILDERS else _user_mechanism(name)


def _user_mechanism(name: str) -> Mechanism:
    """The user's function; an error in it becomes one line that names it."""
    function = function_of(name, "--mechanism")

    def release(grads: Grads, generator: torch.Generator) -> Grads:
        try:
            released: Grads = function(grads, generator)
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"--mechanism {name} raised {one_line(error)}") from error
        return released

    return release
