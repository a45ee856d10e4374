"""A file that asks for a grid of experiments, and the cells that it unfolds to."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import pydantic
import yaml
from yaml.constructor import ConstructorError

from leakgauge.core.checks import InputError, nearest, require, require_choice
from leakgauge.guarantee.run import GuaranteeCell
from leakgauge.inference.run import ADAPTIVE, STATIC
from leakgauge.results.measurements import ACCUMULATED
from leakgauge.runs.cell import KINDS, AnyCell, Cell, PaperFigure, differing, kind_of, named

SMALL = "small"


@dataclass(frozen=True)
class Grid:
    """What one file asks for at one size.

    Attributes:
        name: for folders and titles.
        about: in a few sentences.
        size: the word that chose the overrides; empty where the file has no sizes.
        grids: the cells of each of the file's grids.
        paper: what the paper states.
    """

    name: str
    about: str
    size: str
    grids: tuple[tuple[AnyCell, ...], ...]
    paper: tuple[PaperFigure, ...] = ()

    @property
    def cells(self) -> list[AnyCell]:
        """Every cell once; the first seed of all comes before the second of any.

        So a run that is stopped early has whole figures of fewer seeds.
        """
        found = _once(cell for cells in self.grids for cell in cells)
        seeds = list(dict.fromkeys(cell.seed for cell in found))
        return sorted(found, key=lambda cell: seeds.index(cell.seed))


class _File(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    name: Annotated[str, pydantic.Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    about: str = ""
    grids: Annotated[list[dict[str, Any]], pydantic.Field(min_length=1)]
    sizes: dict[str, dict[str, Any]] = {}
    paper: list[dict[str, Any]] = []


_STATED = pydantic.TypeAdapter(PaperFigure)
_CELLS: Mapping[type[AnyCell], "pydantic.TypeAdapter[Any]"] = {
    kind: pydantic.TypeAdapter(kind) for kind in (Cell, *KINDS.values())
}
_ROW = [one.name for one in fields(PaperFigure)]
_LISTS = ("drop", "hidden")
"""Settings whose single value is a list: only a list of lists is several values."""


def read_grid(path: Path, size: str | None = None) -> Grid:
    """Read a file and unfold it.

    Args:
        path: YAML with ``name``, ``about``, ``grids``, ``sizes`` and ``paper``.
        size: one of the file's sizes; None takes ``"small"``, else the first.

    Raises:
        InputError: the file cannot be read, or asks for what does not exist.
    """
    try:
        return _unfold(_checked(_loaded(path)), size)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


class _Strict(yaml.SafeLoader):
    """YAML without repeated keys, of which PyYAML would take the last without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a key that stands twice."""
        keys = [str(key.value) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise ConstructorError(None, None, f"key {key!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _loaded(path: Path) -> Any:
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _Strict)
    except FileNotFoundError as error:
        raise InputError("no such file; expected a YAML file that describes a grid") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read ({error})") from error
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise InputError(f"is not YAML: {reason}") from error


def _checked(content: Any) -> _File:
    require(
        isinstance(content, dict),
        f"holds {_type(content)}; expected the keys {', '.join(_File.model_fields)}",
    )
    _refuse_unknown(content, _File.model_fields, "the file")
    try:
        return _File.model_validate(content)
    except pydantic.ValidationError as error:
        raise InputError(_first(error)) from error


def _unfold(file: _File, size: str | None) -> Grid:
    """The grid at one size; the other sizes are checked too."""
    known = [one.name for one in fields(_kind(file))]
    rows = tuple(_stated(row, f"paper row {i}", known) for i, row in enumerate(file.paper, start=1))
    for name, overrides in file.sizes.items():
        _refuse_unknown(overrides, known, f"size {name}")
    sizes = {
        name: Grid(file.name, file.about.strip(), name, _grids(file, overrides), rows)
        for name, overrides in (file.sizes or {"": {}}).items()
    }
    for number, row in enumerate(rows, start=1):
        about = [[cell for cell in grid.cells if row.about(cell)] for grid in sizes.values()]
        require(any(about), f"paper row {number} is about no cell of the grids; mend its 'where'")
        other = next(
            (name for cells in about for cell in cells for name in differing(cells[0], cell)), ""
        )
        require(
            not other,
            f"paper row {number} is about cells that differ in {other}; add it to 'where'",
        )
        _refuse_unmeasured(row, [cell for cells in about for cell in cells], number)
    return sizes[_size(file, size)]


def _refuse_unmeasured(row: PaperFigure, about: list[AnyCell], number: int) -> None:
    """A figure that no cell has would stand as "not run" for ever."""
    played = [cell for cell in about if isinstance(cell, Cell)]
    if not played:
        require(
            (row.knowledge, row.round) == (ADAPTIVE, ACCUMULATED)
            or not isinstance(about[0], GuaranteeCell),
            f"paper row {number} is about a guarantee, whose auditor knows the mechanism and sees "
            "no rounds; write knowledge: adaptive and no round",
        )
        return
    require(
        row.knowledge == STATIC or any(cell.defense != "none" for cell in played),
        f"paper row {number} is about an adaptive adversary, but without a defense there is "
        "nothing to know; write knowledge: static, or name a defense in 'where'",
    )
    most = max(cell.rounds for cell in played)
    require(
        not isinstance(row.round, int) or 1 <= row.round <= most,
        f"paper row {number} is about round {row.round}; its cells have rounds 1 to {most}",
    )


def _size(file: _File, size: str | None) -> str:
    if not file.sizes:
        require(size is None, f"the file has no sizes; run it without --size {size}")
        return ""
    name = size or (SMALL if SMALL in file.sizes else next(iter(file.sizes)))
    require_choice(name, "--size", file.sizes)
    return name


def _grids(file: _File, overrides: Mapping[str, Any]) -> tuple[tuple[AnyCell, ...], ...]:
    return tuple(
        _cells({**one, **overrides}, f"grid {i}") for i, one in enumerate(file.grids, start=1)
    )


def _cells(settings: Mapping[str, Any], where: str) -> tuple[AnyCell, ...]:
    """Every combination, in the order of the file's keys."""
    known = [one.name for one in fields(kind_of(settings.get("ask")))]
    _refuse_unknown(settings, known, where)
    require("data" in settings, f"{where} names no data; add a line 'data: NAME or path'")
    choices = {name: _choices(name, value) for name, value in settings.items()}
    found = (dict(zip(choices, one, strict=True)) for one in product(*choices.values()))
    return tuple(_once(_cell(one, where) for one in found))


def _cell(settings: Mapping[str, Any], where: str) -> AnyCell:
    """With its adversary named; refuses here what would fail hours later."""
    cell = _made(_CELLS[kind_of(settings.get("ask"))], settings, where)
    try:
        return named(cell)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def _kind(file: _File) -> type[AnyCell]:
    """Of the file's cells: what they are asked decides which settings they have."""
    kinds = {kind_of(one.get("ask")) for one in file.grids}
    require(
        len(kinds) == 1,
        f"the grids ask for different things ({', '.join(sorted(map(_asked, file.grids)))}); write "
        "a file for each",
    )
    return kinds.pop()


def _asked(settings: Mapping[str, Any]) -> str:
    return str(settings.get("ask", Cell.ask))


def _choices(name: str, value: Any) -> list[Any]:
    """The values of a setting that a file names."""
    several = isinstance(value, list)
    if name in _LISTS:
        several = several and any(isinstance(one, list) for one in value)
    require(not several or len(value) > 0, f"{name} is an empty list; name a value")
    values = value if several else [value]
    listed = name in _LISTS
    return [[one] if listed and not isinstance(one, list) else one for one in values]


def _stated(row: Mapping[str, Any], where: str, settings: list[str]) -> PaperFigure:
    _refuse_unknown(row, _ROW, where)
    stated: PaperFigure = _made(_STATED, row, where)
    _refuse_unknown(stated.where, settings, f"{where}, where")
    return stated


def _once(cells: Iterable[AnyCell]) -> list[AnyCell]:
    found: list[AnyCell] = []
    for cell in cells:
        if cell not in found:
            found.append(cell)
    return found


def _made(adapter: "pydantic.TypeAdapter[Any]", values: Mapping[str, Any], where: str) -> Any:
    try:
        return adapter.validate_python(values)
    except pydantic.ValidationError as error:
        raise InputError(f"{where}: {_first(error)}") from error


def _refuse_unknown(found: Iterable[object], known: Iterable[str], where: str) -> None:
    names = list(known)
    for key in found:
        require(key in names, f"{where} has an unknown key {key!r}{nearest(str(key), names)}")


def _first(error: pydantic.ValidationError) -> str:
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "missing":
        return f"{where} is missing; add it"
    said = problem["msg"][:1].lower() + problem["msg"][1:]  # a pattern keeps its capitals
    return f"{where} is {str(problem['input'])[:60]!r}; {said}"


def _type(content: Any) -> str:
    return "nothing" if content is None else f"a {type(content).__name__}"
