"""Import the user's own functions and classes, written as ``MODULE:NAME``."""

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from leakgauge.core.checks import InputError, nearest, require


def function_of(spec: str, option: str) -> Callable[..., Any]:
    """Return the function or class NAME of MODULE, which may lie in the working folder.

    Args:
        spec: MODULE:NAME, such as ``"my_model:build"``.
        option: the option that gave it, for messages.

    Raises:
        InputError: ``spec`` has another form, MODULE cannot be imported, or NAME is not in it.
    """
    module_name, colon, name = spec.partition(":")
    require(
        bool(module_name and colon and name),
        f"{option} is {spec!r}; expected MODULE:FUNCTION, for example my_model:build",
    )
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise InputError(
            f"{option} {spec}: cannot import {module_name!r} from the working folder or the "
            f"installed packages: {one_line(error)}"
        ) from error
    known = [key for key, value in vars(module).items() if callable(value)]
    require(name in known, f"{option} {spec}: no function {name!r} there{nearest(name, known)}")
    function: Callable[..., Any] = getattr(module, name)
    return function


def one_line(error: BaseException) -> str:
    """Return the type and the first line of an error in one line.

    >>> one_line(KeyError("income"))
    "KeyError: 'income'"
    """
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
