"""The YAML file that asks for a grid of experiments."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import pydantic

from leakgauge.core.checks import InputError, require, require_known
from leakgauge.core.outside import read_written
from leakgauge.runs.paper import PaperRow
from leakgauge.runs.spec import first_problem


class GridFile(pydantic.BaseModel):
    """The content of a file, before its grids are unfolded; its texts stand in the schema."""

    model_config = pydantic.ConfigDict(extra="forbid")

    name: Annotated[
        str,
        pydantic.Field(
            description="name of the grid, for folders and titles",
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        ),
    ]
    about: Annotated[str, pydantic.Field(description="what it is about, in a few sentences")] = ""
    grids: Annotated[
        list[dict[str, Any]],
        pydantic.Field(
            description="settings by key; every combination of the values is a cell", min_length=1
        ),
    ]
    sizes: Annotated[
        dict[str, dict[str, Any]],
        pydantic.Field(
            description="settings that replace those of every grid, by the size's name, which "
            "--size chooses"
        ),
    ] = {}
    paper: Annotated[
        list[dict[str, Any]],
        pydantic.Field(description="figures that a paper states, to compare with ours"),
    ] = []


_ROW = pydantic.TypeAdapter(PaperRow)


def read_grid_file(path: Path) -> GridFile:
    """Read a file.

    Args:
        path: YAML with ``name``, ``about``, ``grids``, ``sizes`` and ``paper``.

    Raises:
        InputError: it cannot be read, or lacks a key or has an unknown one.
    """
    content = read_written(path, "a YAML file that describes a grid")
    require(
        isinstance(content, dict),
        f"holds {_type(content)}; expected the keys {', '.join(GridFile.model_fields)}",
    )
    refuse_unknown(content, GridFile.model_fields, "the file")
    try:
        return GridFile.model_validate(content)
    except pydantic.ValidationError as error:
        raise InputError(first_problem(error)) from error


def make_row(row: Mapping[str, Any], where: str, settings: Iterable[str]) -> PaperRow:
    """Return a row of ``paper``.

    Args:
        row: plain values.
        where: names the row in refusals.
        settings: the names that its ``where`` may use.

    Raises:
        InputError: a key is unknown or a value has the wrong type.
    """
    refuse_unknown(row, [one.name for one in fields(PaperRow)], where)
    try:
        made = _ROW.validate_python(row)
    except pydantic.ValidationError as error:
        raise InputError(f"{where}: {first_problem(error)}") from error
    refuse_unknown(made.where, settings, f"{where}, where")
    return made


def refuse_unknown(names: Iterable[object], known: Iterable[str], where: str) -> None:
    """Refuse a name that is none of the known ones.

    Raises:
        InputError: one is unknown.
    """
    words = list(known)
    for name in names:
        require_known(name, words, f"{where} has an unknown key {name!r}")


def _type(content: Any) -> str:
    return "nothing" if content is None else f"a {type(content).__name__}"
