"""Optional packages: the command that installs one, and the line that says one is missing."""

from leakgauge.core.checks import InputError


def install_command(extra: str) -> str:
    """Return the command that installs an extra.

    >>> install_command("hf")
    "pip install 'leakgauge[hf]'"
    """
    return f"pip install 'leakgauge[{extra}]'"


def not_installed(package: str, extra: str) -> InputError:
    """Return the error that a package of an extra is missing, to be raised.

    >>> str(not_installed("flwr", "flower"))
    "flwr is not installed; install it with: pip install 'leakgauge[flower]'"
    """
    return InputError(f"{package} is not installed; install it with: {install_command(extra)}")
