"""What an installation has: packages of its extras, and devices of torch."""

from leakgauge.core.checks import InputError, require


def install_command(extra: str) -> str:
    """Return the command that installs an extra.

    >>> install_command("hf")
    "pip install 'leakgauge[hf]'"
    """
    return f"pip install 'leakgauge[{extra}]'"


def not_installed(package: str, extra: str) -> InputError:
    """Return the error to raise where a package of an extra is missing.

    >>> str(not_installed("flwr", "flower"))
    "flwr is not installed; install it with: pip install 'leakgauge[flower]'"
    """
    return InputError(f"{package} is not installed; install it with: {install_command(extra)}")


def check_device(name: str) -> None:
    """Refuse a device that torch cannot use on this machine."""
    import torch

    number = name.removeprefix("cpu:")
    require(
        number in (name, "0"),
        f"--device is {name!r}, and torch takes every number of cpu for the same; write cpu",
    )
    try:
        torch.zeros(1, device=name).sum().item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0][:120]
        raise InputError(
            f"--device {name} cannot be used here ({reason}); cpu always can"
        ) from error
