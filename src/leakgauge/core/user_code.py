"""Import the user's own functions and classes, written as ``MODULE:NAME``."""

import hashlib
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from leakgauge.core.checks import InputError, nearest, require


def function_of(spec: str, option: str) -> Callable[..., Any]:
    """Return the function or class NAME of MODULE, also from the working folder.

    Args:
        spec: MODULE:NAME, such as ``"my_model:build"``.
        option: name of the option, for messages.

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


def source_hash(text: str) -> str | None:
    """Return the sha256 of the file of MODULE where ``text`` begins with MODULE:NAME, else None.

    >>> source_hash("prune:rate=0.9") is None, source_hash("sign") is None
    (True, True)
    """
    match = re.match(r"\s*([A-Za-z_][\w.]*):[A-Za-z_]\w*\s*(:|$)", text)
    if match is None:
        return None
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.util.find_spec(match[1])
    except (ImportError, ValueError):
        return None
    if module is None or module.origin is None or not Path(module.origin).is_file():
        return None
    return hashlib.sha256(Path(module.origin).read_bytes()).hexdigest()
