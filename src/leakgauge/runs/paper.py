"""Figures that a paper states, and the cells of a grid that they are about."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from leakgauge.core.strict import Finite, Whole
from leakgauge.runs.spec import Spec, plain


@dataclass(frozen=True)
class PaperRow:
    """A figure that a paper states, as a grid's file has it.

    Attributes:
        where: settings of the cells that it is about.
        value: the paper's figure.
        metric: its metric; empty for the question's first.
        round: all rounds together, or one of them.
        knowledge: what the adversary knew of the defense.
        note: anything that a reader should know.
    """

    where: Mapping[str, Any]
    value: Finite
    metric: str = ""
    round: Whole | Literal["accumulated", "stacked"] = "accumulated"
    knowledge: Literal["static", "adaptive"] = "static"
    note: str = ""

    def about(self, spec: Spec) -> bool:
        """Return whether it is a figure of this cell, whatever its seed."""
        settings = plain(spec)
        return all(settings.get(name) == value for name, value in self.where.items())
