"""The files behind ``MODULE:NAME``: the module, the user's modules that it imports, files it names.

Nothing is imported to find them. What an installed package imports is left out: its version counts.
"""

import ast
import functools
import hashlib
import importlib
import os
import site
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path

_LONGEST = 1024
"""Characters of a text that can name a file, at most."""


def code_files(module: str) -> dict[str, Path]:
    """Return the files of a module and of the user's modules that it imports, by module.

    Imports inside functions count; those by a computed name cannot be seen. Of an installed
    package, only the module itself is returned.
    """
    importlib.invalidate_caches()
    found: dict[str, Path] = {}
    specs: dict[str, ModuleSpec | None] = {}  # of packages that many names share
    left = [module]
    while left:
        name = left.pop()
        path = None if name in found else _file_of(name, specs)
        if path is None or (is_installed(path) and name != module):
            continue
        found[name] = path
        if not is_installed(path):
            left += [one for text in _imported(name, path) for one in _with_parents(text)]
    return found


def code_digest(module: str, *, files: bool) -> str | None:
    """Return the sha256 of a module's code; None where it has no file.

    Args:
        module: name of the module.
        files: whether files that the user's code names in a text count as well.
    """
    found = code_files(module)
    if module not in found:
        return None
    parts = {name: _sha256(path) for name, path in found.items()}
    if files:
        parts |= {f"file {text}": _sha256(path) for text, path in _named_files(found)}
    lines = [f"{name} {one}" for name, one in sorted(parts.items())]
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()


def marks_of(module: str) -> dict[str, str]:
    """Return where each of the user's modules lies, and its sha256, by module."""
    found = code_files(module).items()
    return {name: f"{path} {_sha256(path)}" for name, path in found if not is_installed(path)}


def is_installed(path: Path) -> bool:
    """Return whether a file belongs to Python, to an installed package or to leakgauge."""
    whole = path.resolve()
    return any(whole.is_relative_to(root) for root in _roots())


@functools.cache
def _roots() -> tuple[Path, ...]:
    places = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    places += [*site.getsitepackages(), site.getusersitepackages()]
    return (*{Path(place).resolve() for place in places}, Path(__file__).resolve().parents[1])


def _named_files(found: Mapping[str, Path]) -> Iterator[tuple[str, Path]]:
    """Yield the texts of the code that name a file, from the working folder or from the code's."""
    for path in found.values():
        for text in () if is_installed(path) else _facts(path.read_bytes())[1]:
            for place in (Path(text), path.parent / text):
                if os.path.isfile(place) and place.resolve() not in found.values():
                    yield text, place


def _imported(name: str, path: Path) -> Iterator[str]:
    """Yield the names of the modules that a module may import."""
    package = name if path.stem == "__init__" else name.rpartition(".")[0]
    for level, base, names in _facts(path.read_bytes())[0]:
        parts = package.split(".") if level and package else []
        above = parts[: len(parts) - level + 1] if level else []
        whole = ".".join([*above, *([base] if base else [])])
        yield from ([whole] if whole else [])
        yield from (f"{whole}.{one}" if whole else one for one in names)


@functools.lru_cache(maxsize=256)
def _facts(content: bytes) -> tuple[tuple[tuple[int, str, tuple[str, ...]], ...], tuple[str, ...]]:
    """Return the imports of a source (level, module, names) and its texts."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError):
        return (), ()  # a compiled module, or code that cannot be imported either
    imports: list[tuple[int, str, tuple[str, ...]]] = []
    texts: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports += [(0, one.name, ()) for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            imports.append((node.level, node.module or "", tuple(one.name for one in node.names)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts[node.value] = None
    possible = (one for one in texts if 0 < len(one) <= _LONGEST and "\n" not in one)
    return tuple(imports), tuple(possible)


def _with_parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[: at + 1]) for at in range(len(parts))]


def _file_of(name: str, specs: dict[str, ModuleSpec | None]) -> Path | None:
    """Return the file of a module as Python would find it now; ``specs`` are those found so far."""
    spec: ModuleSpec | None = None
    for at, part in enumerate(_with_parents(name)):
        if part not in specs:
            folders = None if spec is None else spec.submodule_search_locations
            specs[part] = None if at and folders is None else _found(part, folders)
        spec = specs[part]
        if spec is None:
            break
    here = getattr(sys.modules.get(name), "__file__", None)  # not every module is found by name
    origin = here if spec is None else spec.origin
    return Path(origin).resolve() if origin is not None and os.path.isfile(origin) else None


def _found(name: str, folders: "list[str] | None") -> ModuleSpec | None:
    for finder in sys.meta_path:
        try:
            spec = finder.find_spec(name, folders)
        except (AttributeError, ImportError, ValueError):
            continue
        if spec is not None:
            return spec
    return None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
