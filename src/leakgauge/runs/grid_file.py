"""The YAML file that asks for a grid of experiments."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import pydantic
import yaml
from yaml.constructor import ConstructorError

from leakgauge.core.checks import InputError, nearest, require
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
    content = _loaded(path)
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
        require(name in words, f"{where} has an unknown key {name!r}{nearest(str(name), words)}")


class _Strict(yaml.SafeLoader):
    """YAML without repeated keys; PyYAML would silently take the last.

    It holds text that can be written: no half of a character (``"\\ud800"``).
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a key that stands twice."""
        keys = [str(key.value) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise ConstructorError(None, None, f"key {key!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep)

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        """Refuse text that is not UTF-8."""
        value = super().construct_scalar(node)
        if str(value).encode("utf-8", "replace").decode() != str(value):
            raise ConstructorError(None, None, f"{value!r} is no text", node.start_mark)
        return value


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
    except RecursionError as error:
        raise InputError("nests too deeply; expected a YAML file that describes a grid") from error
    except ValueError as error:  # a date that does not exist, or a number of thousands of digits
        reason = str(error).partition(";")[0]
        raise InputError(f"has a value that cannot be read ({reason}); write it as text") from error


def _type(content: Any) -> str:
    return "nothing" if content is None else f"a {type(content).__name__}"
