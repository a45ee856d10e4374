"""Whether torch has a device here."""

from leakgauge.core.checks import InputError


def check_device(name: str) -> None:
    """Refuse a device that torch does not have here.

    Raises:
        InputError: it cannot be used.
    """
    import torch

    try:
        torch.zeros(1, device=name).sum().item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0][:120]
        raise InputError(
            f"--device {name} cannot be used here ({reason}); cpu always can"
        ) from error
