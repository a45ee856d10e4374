"""The user's declarations about a release, never inferred from data or a run."""

import datetime
import re
from pathlib import Path
from typing import Any

import pydantic
from pydantic_core import PydanticCustomError

from leakgauge.core.checks import InputError, require, require_known
from leakgauge.core.outside import read_written
from leakgauge.runs.spec import first_problem

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

    @pydantic.field_validator("*", mode="before")
    @classmethod
    def _text(cls, value: Any) -> str:
        """Return a list as one line of text, and an empty value as not declared."""
        parts = value if isinstance(value, list) else [value]
        if not all(one is None or isinstance(one, str) for one in parts):
            raise PydanticCustomError("text", "expected text, or a list of texts")
        lines = [" ".join((one or NOT_DECLARED).split()) for one in parts]
        return "; ".join(lines) or NOT_DECLARED

    @pydantic.field_validator("date")
    @classmethod
    def _exists(cls, text: str) -> str:
        """Refuse a date that does not exist."""
        if re.fullmatch(r"\d{4}-\d{1,2}-\d{1,2}", text, re.ASCII):
            datetime.date(*map(int, text.split("-")))
        return text


def read_context(path: Path | None) -> Context:
    """Return the declarations of a YAML file. Without a file, or a key, nothing is declared.

    Raises:
        InputError: the file cannot be read, a key is unknown, or a value is not text.
    """
    if path is None:
        return Context()
    what = f"--context {str(path)!r}"
    try:
        values = read_written(path, "a YAML file with lines such as 'system: NAME'", texts=True)
    except InputError as error:
        raise InputError(f"{what}: {error}") from error
    require(
        isinstance(values, dict),
        f"{what} holds {type(values).__name__}; expected lines such as 'system: NAME'",
    )
    known = Context.model_fields
    for name in values:
        require_known(name, known, f"{what} has an unknown key {str(name)!r}")
    try:
        return Context.model_validate(values)
    except pydantic.ValidationError as error:
        raise InputError(f"{what}: {first_problem(error)}") from error
