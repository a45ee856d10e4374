"""The user's declarations about a release, never inferred from data or a run."""

from datetime import date
from pathlib import Path
from typing import Any

import pydantic
import yaml

from leakgauge.core.checks import InputError, nearest, require

NOT_DECLARED = "not declared"


def _declared(description: str) -> Any:
    return pydantic.Field(default=NOT_DECLARED, description=description)


class Context(pydantic.BaseModel):
    """The release that a card is about, in the user's own words."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    system: str = _declared("name of the system or model")
    version: str = _declared("of the system or model")
    purpose: str = _declared("what it is used for")
    owner: str = _declared("who answers for it")
    contact: str = _declared("where to ask")
    date: str = _declared("of the card; a run has none")
    release: str = _declared("what leaves the house: weights, an interface, updates, nothing")
    recipients: str = _declared("who receives updates, weights or answers")
    access: str = _declared("what recipients see: parameters, gradients, outputs, labels")
    data_subjects: str = _declared("whose data it is trained on")
    retention: str = _declared("how long data, updates and models are kept")
    safeguards: str = _declared("other measures: contracts, access control, aggregation")
    decision_maker: str = _declared("who decides on the release")


def read_context(path: Path | None) -> Context:
    """Return the declarations of a YAML file. Without a file, or a key, nothing is declared.

    Raises:
        InputError: the file cannot be read, a key is unknown, or a value is not text.
    """
    if path is None:
        return Context()
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--context {str(path)!r} cannot be read ({error})") from error
    except yaml.YAMLError as error:
        raise InputError(
            f"--context {str(path)!r} is not YAML ({' '.join(str(error).split())})"
        ) from error
    require(
        isinstance(values, dict),
        f"--context {str(path)!r} holds {type(values).__name__}; expected lines such as "
        "'system: NAME'",
    )
    known = Context.model_fields
    for name in values:
        require(
            name in known,
            f"--context {str(path)!r} has an unknown key {str(name)!r}{nearest(str(name), known)}",
        )
    return Context(**{name: _text(name, value, path) for name, value in values.items()})


def _text(name: str, value: Any, path: Path) -> str:
    """Return a value as text; a list becomes one line, an empty value is not declared."""
    if value is None or value in ("", []):
        return NOT_DECLARED
    if isinstance(value, list):
        return "; ".join(_text(name, one, path) for one in value)
    require(
        isinstance(value, str | int | float | date) and not isinstance(value, bool),
        f"--context {str(path)!r}: {name} is {value!r}; expected text, or a list of texts",
    )
    return " ".join(str(value).split())
