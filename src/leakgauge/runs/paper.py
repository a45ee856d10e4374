"""Figures that a paper states, and the cells of a grid that they are about."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pydantic

from leakgauge.core.strict import Finite, Whole
from leakgauge.results.measurements import ADVERSARY, FIRST
from leakgauge.runs.spec import Spec, plain


@dataclass(frozen=True)
class PaperRow:
    """A figure that a paper states, as a grid's file has it; its texts stand in the schema."""

    where: Annotated[
        Mapping[str, Any], pydantic.Field(description="settings of the cells that it is about")
    ]
    value: Annotated[Finite, pydantic.Field(description="the paper's figure")]
    metric: Annotated[
        str, pydantic.Field(description="its metric; empty for the question's first")
    ] = ""
    round: Annotated[
        Whole
        | Literal["accumulated", "stacked"]
        | Annotated[str, pydantic.Field(pattern=rf"^{FIRST}[1-9][0-9]*$")],
        pydantic.Field(
            description="all rounds together, the number of one, or first-5: the first five"
        ),
    ] = "accumulated"
    knowledge: Annotated[
        Literal["static", "adaptive"],
        pydantic.Field(description="whether the adversary knew the defense: adaptive; else static"),
    ] = "static"
    std: Annotated[
        Finite | None,
        pydantic.Field(ge=0, description="its standard deviation over the paper's own seeds"),
    ] = None
    note: Annotated[str, pydantic.Field(description="anything that a reader should know")] = ""

    def about(self, spec: Spec) -> bool:
        """Return whether it is a figure of this cell, whatever its seed.

        A cell may run several adversaries against one model; a row names one of them.
        """
        return self.is_about(plain(spec))

    def is_about(self, settings: Mapping[str, Any]) -> bool:
        """Return the same of the settings that ``plain`` returns, which takes time."""
        return all(
            settings.get(name) == value
            or (name == ADVERSARY and value in _several(settings.get(name)))
            for name, value in self.where.items()
        )


def _several(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()
