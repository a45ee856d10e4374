"""The description of a kept update in YAML: the types and bounds of its fields."""

from pathlib import Path
from typing import Annotated, Literal

import pydantic

from leakgauge.core.checks import LARGEST, InputError
from leakgauge.core.files import DamagedError, read_yaml
from leakgauge.integrations.training_settings import FIELDS, LocalTraining
from leakgauge.runs.spec import first_problem

FORMAT = "leakgauge kept update 1"

Count = Annotated[int, pydantic.Field(gt=0, lt=LARGEST)]
Checksum = Annotated[str, pydantic.Field(pattern=r"^[0-9a-f]{64}$")]
Number = int | Annotated[float, pydantic.Field(allow_inf_nan=False)]
Numbers = dict[str, Number]


class _KeptFields(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True, extra="forbid", frozen=True)


class KeptModel(_KeptFields):
    """Name and checksum of the file of received tensors."""

    file: Annotated[str, pydantic.Field(pattern=r"^[0-9a-f]+\.safetensors$")]
    sha256: Checksum


class KeptTensors(_KeptFields):
    """Checksum and size of the file of sent tensors."""

    sha256: Checksum
    bytes: Annotated[int, pydantic.Field(ge=0)]


class KeptBase(_KeptFields):
    """Number and checksum of the parameters that a client has and does not send."""

    sha256: Checksum
    tensors: Count


class KeptFile(_KeptFields):
    """What a keeper writes about one update; ``Exchange`` explains the fields."""

    format: Literal["leakgauge kept update 1"]
    round: Count
    client: Annotated[str, pydantic.Field(min_length=1)]
    source: str
    seen: Literal["client", "server"]
    run: str = ""
    kind: Literal["weights", "change"]
    model: KeptModel
    update: KeptTensors
    examples: Count | None
    beside: list[str] = []
    metrics: Numbers
    config: Numbers
    training: dict[str, Number | str | None]
    base: KeptBase | None = None

    @property
    def known(self) -> LocalTraining:
        """The settings of the client's training.

        Raises:
            InputError: a setting is unknown, or its value does not fit.
        """
        unknown = [name for name in self.training if name not in FIELDS]
        if unknown:
            raise InputError(f"training.{unknown[0]} is unknown; known: {', '.join(FIELDS)}")
        for name, value in self.training.items():
            if value is not None and isinstance(value, str) != (name == "optimizer"):
                wanted = "a text" if name == "optimizer" else "a number"
                raise InputError(f"training.{name} is {value!r}; expected {wanted}")
        return LocalTraining(**self.training)  # type: ignore[arg-type]  # it checks them itself


def read_about(path: Path) -> KeptFile:
    """Return the description in a sealed YAML file.

    Raises:
        InputError: the file is damaged, or a field is missing or has another type.
    """
    kept = read_yaml(path)
    if kept.get("format") != FORMAT:
        raise InputError(
            f"{str(path)!r} does not describe a kept update; expected format {FORMAT!r}"
        )
    try:
        about = KeptFile.model_validate(kept)
        _ = about.known
    except pydantic.ValidationError as error:
        raise DamagedError(f"{str(path)!r}: {first_problem(error)}; keep the round anew") from error
    except InputError as error:
        raise DamagedError(f"{str(path)!r}: {error}; keep the round anew") from error
    return about
