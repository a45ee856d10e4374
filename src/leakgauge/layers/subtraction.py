"""What a participant learns of another one's gradient from two consecutive global models."""

from collections.abc import Mapping

from torch import Tensor

from leakgauge.core.checks import require, require_positive


def gradient_of_other(
    before: Mapping[str, Tensor],
    after: Mapping[str, Tensor],
    own: Mapping[str, Tensor],
    *,
    lr: float,
    share: float = 0.5,
) -> dict[str, Tensor]:
    """Return the gradient that the other one of two participants sent in a round of FedSGD.

    The server steps by the average, ``after = before - lr (share own + (1 - share) other)``, so
    the difference of two global models, less the own part, is the other's gradient: exactly, up to
    rounding. With more participants it is the average of all others.

    Args:
        before: the parameters of the global model before the round ``[*p]``.
        after: those after the round.
        own: the gradient that the attacker itself sent.
        lr: the server's learning rate.
        share: the attacker's weight in the average.

    Raises:
        InputError: the share is not between 0 and 1, or the rate not above 0.

    References:
        Mo et al., 2021, sections 3.3 and 5.
    """
    require_positive(lr, "learning rate")
    require(0 <= share < 1, f"share of the attacker is {share:g}; expected 0 up to 1")
    return {
        name: ((before[name] - after[name]) / lr - share * own[name]) / (1 - share) for name in own
    }
