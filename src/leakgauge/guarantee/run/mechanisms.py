"""The mechanisms that an audit can name, and the user's own."""

from collections.abc import Callable

import torch

from leakgauge.core.checks import InputError
from leakgauge.core.types import Grads
from leakgauge.core.user_code import function_of, one_line
from leakgauge.guarantee.mechanism import DPSGD, Mechanism, OpacusMechanism
from leakgauge.guarantee.spec import GuaranteeSpec, claimed


def _opacus(dpsgd: DPSGD) -> Mechanism:
    return OpacusMechanism(dpsgd.clip, dpsgd.multiplier(1))


BUILDERS: dict[str, Callable[[DPSGD], Mechanism]] = {
    "dpsgd": lambda dpsgd: dpsgd,
    "opacus": _opacus,
}
"""For each name, a function that builds the mechanism from the DP-SGD that it claims to be."""


def claimed_by(spec: GuaranteeSpec) -> DPSGD:
    """Return the DP-SGD that the mechanism claims to be.

    Raises:
        InputError: clip or noise is not above 0.
    """
    return DPSGD(*claimed(spec))


def mechanism_of(spec: GuaranteeSpec) -> Mechanism:
    """Return the mechanism to audit.

    Raises:
        InputError: clip or noise is not above 0, Opacus is not installed, or the user's function
            cannot be imported.
    """
    dpsgd = claimed_by(spec)
    if spec.mechanism in BUILDERS:
        return BUILDERS[spec.mechanism](dpsgd)
    return _user_mechanism(spec.mechanism)


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
