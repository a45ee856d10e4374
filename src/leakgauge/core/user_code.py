"""Import the user's own functions and classes, written as ``MODULE:NAME``."""

import importlib
import os
import re
import sys
from collections.abc import Callable
from typing import Any

from leakgauge.core.checks import InputError, require, require_known
from leakgauge.core.code_files import code_digest, marks_of

_IMPORTED: dict[str, str] = {}
"""The user's modules that were imported here: place and sha256 of the file, by module."""


def function_of(spec: str, option: str) -> Callable[..., Any]:
    """Return the function or class NAME of MODULE, also from the working folder.

    A module whose file, or a file that it imports, was changed is imported anew.

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
    _from_here()
    _forget_changed(module_name)
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # it tells seconds apart only
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise InputError(
            f"{option} {spec}: cannot import {module_name!r} from the working folder or the "
            f"installed packages: {one_line(error)}"
        ) from error
    finally:
        sys.dont_write_bytecode = written
    known = [key for key, value in vars(module).items() if callable(value)]
    require_known(name, known, f"{option} {spec}: no function {name!r} there")
    function: Callable[..., Any] = getattr(module, name)
    return function


def one_line(error: BaseException) -> str:
    """Return the type and the first line of an error in one line.

    >>> one_line(KeyError("income"))
    "KeyError: 'income'"
    """
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, at most 200 characters; its type if it has none.

    >>> first_line(ValueError("no such layer\\nin this model")), first_line(ValueError())
    ('no such layer', 'ValueError')
    """
    text = str(error).strip().splitlines()
    return text[0][:200] if text else type(error).__name__


def source_hash(text: str, *, files: bool = True) -> str | None:
    """Return the sha256 of the code of MODULE where ``text`` begins with MODULE:NAME, else None.

    It covers the user's modules that MODULE imports.

    Args:
        text: value of a setting.
        files: whether files that the code names count as well.

    >>> source_hash("prune:rate=0.9") is None, source_hash("sign") is None
    (True, True)
    """
    match = re.match(r"\s*([A-Za-z_][\w.]*):[A-Za-z_]\w*\s*(:|$)", text)
    if match is None:
        return None
    _from_here()
    return code_digest(match[1], files=files)


def _from_here() -> None:
    """Let modules be found in the working folder."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def _forget_changed(module: str) -> None:
    """Drop the user's modules whose files are others than those that were imported."""
    marks = marks_of(module)
    marks.pop("__main__", None)
    if any(name in sys.modules and _IMPORTED.get(name, one) != one for name, one in marks.items()):
        for name in marks:
            sys.modules.pop(name, None)
    _IMPORTED.update(marks)
