"""The content of a Python object: a digest of its values, its settings and its code."""

import functools
import hashlib
import inspect
import pickle
import sys
from collections.abc import Iterable
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor, nn

from leakgauge.core.checks import InputError
from leakgauge.core.code_files import is_installed
from leakgauge.data.fingerprints import fingerprint, tensor_bytes

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_NOT_KEPT = (
    *(TypeError, ValueError, AttributeError, RuntimeError, LookupError, OSError, ImportError),
    pickle.PickleError,
)
"""Errors of what pickle cannot keep."""


def content_digest(*values: Any) -> str:
    """Return the sha256 of the content of objects, in hex, the same in every process.

    Tensors and arrays count by their values, containers and instances by their parts, the user's
    functions and classes by their code and by the global values that it uses, and what an installed
    package defines by its name and the package's version. What Python cannot take apart, as an open
    file, counts by its type.

    Raises:
        InputError: the parts are nested too deeply.

    >>> content_digest(nn.Dropout(0.1)) == content_digest(nn.Dropout(0.2))
    False
    """
    content = _Content()
    try:
        for value in values:
            content.add(value)
    except RecursionError as error:
        raise InputError(
            "the model or loss holds objects within objects too deeply to tell whether they "
            "changed; keep data such as linked lists outside of it"
        ) from error
    return content.digest.hexdigest()


class _Content:
    """A digest that grows by one object after the other; one that comes again is a number."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self._seen: dict[int, tuple[int, Any]] = {}  # holds the objects, so that no id comes twice

    def add(self, value: Any) -> None:
        """Add an object."""
        if type(value) in _PLAIN:
            self._mark(type(value).__name__, repr(value))
        elif type(value) is tuple:  # equal tuples may be one object or several
            self._all("tuple", value)
        elif isinstance(value, ModuleType):
            self._mark("module", value.__name__)
        elif id(value) in self._seen:
            self._mark("seen", str(self._seen[id(value)][0]))
        else:
            self._seen[id(value)] = (len(self._seen), value)
            self._new(value)

    def _new(self, value: Any) -> None:
        if isinstance(value, Tensor):
            self._mark("tensor", str(value.requires_grad))
            self.digest.update(tensor_bytes(value))
        elif isinstance(value, np.ndarray) and value.dtype != object:
            self._mark("array", value.dtype.str, str(value.shape))
            self.digest.update(np.ascontiguousarray(value).tobytes())
        elif isinstance(value, pd.DataFrame):
            self._mark("table", fingerprint(value))
        elif isinstance(value, dict):
            self._mark(type(value).__name__)
            self._all("pairs", (part for pair in value.items() for part in pair))
        elif type(value) in (list, np.ndarray):
            self._all("list", list(value))
        elif isinstance(value, set | frozenset):
            self._all("set", sorted(content_digest(one) for one in value))
        elif isinstance(value, CodeType):
            self._code(value)
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, nn.Module) or _is_users(type(value).__module__):
            self._instance(value)
        else:
            self._callable(value)

    def _callable(self, value: Any) -> None:
        if isinstance(value, FunctionType):
            self._function(value)
        elif isinstance(value, MethodType):
            self._all("method", (value.__func__, value.__self__))
        elif isinstance(value, staticmethod | classmethod):
            self._all(type(value).__name__, (value.__func__,))
        elif isinstance(value, property):
            self._all("property", (value.fget, value.fset, value.fdel))
        elif isinstance(value, functools.cached_property):
            self._all("property", (value.func,))
        elif isinstance(value, BuiltinFunctionType):
            self._named("built-in", value)
        elif hasattr(value, "__wrapped__"):
            self._all("wrapped", (value.__wrapped__,))
        else:
            self._reduced(value)

    def _reduced(self, value: Any) -> None:
        """Add what pickle would keep."""
        try:
            parts = value.__reduce_ex__(4)
        except _NOT_KEPT:
            self._named("opaque", type(value))
            return
        if isinstance(parts, str):
            self._named(parts, type(value))
        else:
            whole = (list(one) if hasattr(one, "__next__") else one for one in parts)
            self._all("reduced", whole)

    def _instance(self, value: Any) -> None:
        inner = getattr(value, "_orig_mod", None)
        if isinstance(inner, nn.Module):  # a compiled model computes what the original does
            self.add(inner)
            return
        self._mark("instance")
        self.add(type(value))
        parts = dict(getattr(value, "__dict__", {}))
        for name in (one for kind in type(value).__mro__ for one in _slots(kind)):
            if hasattr(value, name):
                parts[name] = getattr(value, name)
        for name, part in sorted(parts.items()):
            is_hooks = isinstance(value, nn.Module) and "_hooks" in name and hasattr(part, "values")
            self._mark(name)
            self.add(list(part.values()) if is_hooks else part)  # numbers of hooks are no content

    def _class(self, kind: type) -> None:
        self._named("class", kind)
        if not _is_users(kind.__module__):
            return
        self._all("bases", kind.__bases__)
        for name, part in sorted(vars(kind).items()):
            is_code = isinstance(part, FunctionType | staticmethod | classmethod | property)
            if is_code or not name.startswith(("__", "_abc_")):
                self._mark(name)
                self.add(part)

    def _function(self, function: FunctionType) -> None:
        self._named("function", function)
        self._all("defaults", (function.__defaults__, function.__kwdefaults__))
        cells = function.__closure__ or ()
        self._all("closure", (_inside(cell) for cell in cells))
        if not _is_users(function.__module__):
            return
        self.add(function.__code__)
        names = sorted(set(_names(function.__code__)))
        for name in (one for one in names if one in function.__globals__):
            value = function.__globals__[name]
            self._mark(name)
            self.add(value)
            if isinstance(value, ModuleType) and _is_users(value.__name__):
                inside = vars(value)
                self._all("module's", ((one, inside[one]) for one in names if one in inside))

    def _code(self, code: CodeType) -> None:
        self._mark("code", code.co_code.hex())
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        self._all("parts", (*names, code.co_consts))

    def _named(self, what: str, value: Any) -> None:
        module = str(getattr(value, "__module__", None))
        top = sys.modules.get(module.partition(".")[0])
        version = "" if _is_users(module) else str(getattr(top, "__version__", ""))
        self._mark(what, module, str(getattr(value, "__qualname__", "")), version)

    def _all(self, what: str, parts: Iterable[Any]) -> None:
        held = list(parts)
        self._mark(what, str(len(held)))
        for part in held:
            self.add(part)

    def _mark(self, *texts: str) -> None:
        for text in texts:
            part = text.encode("utf-8", "surrogatepass")
            self.digest.update(len(part).to_bytes(8, "little"))
            self.digest.update(part)


def _is_users(module: str | None) -> bool:
    """Return whether a module is the user's: no part of Python and of no installed package."""
    found = sys.modules.get(str(module))
    spec = getattr(found, "__spec__", None)
    if found is None or getattr(spec, "origin", None) in ("built-in", "frozen"):
        return False
    file = getattr(found, "__file__", None)
    return file is None or not _of_a_package(file)


@functools.lru_cache(maxsize=4096)
def _of_a_package(file: str) -> bool:
    return is_installed(Path(file))


def _names(code: CodeType) -> Iterable[str]:
    yield from code.co_names
    for one in code.co_consts:
        if inspect.iscode(one):
            yield from _names(one)


def _slots(kind: type) -> Iterable[str]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _inside(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return "empty"
