"""What all measurements of a run have in common."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from leakgauge.core.knowledge import STATIC
from leakgauge.core.versions import versions
from leakgauge.results.measurements import Estimate, Measurement
from leakgauge.tokens.words import QUESTION


@dataclass(frozen=True)
class Cell:
    """What all measurements of a run have in common."""

    dataset: str
    label: str
    seed: int

    def measurement(
        self,
        metric: str,
        estimate: Estimate,
        *,
        defense: str,
        when: int | str,
        chance: float = 0.0,
        adversary: str = "",
        details: Mapping[str, str] = MappingProxyType({}),
    ) -> Measurement:
        """Return one figure."""
        return Measurement(
            question=QUESTION,
            game=QUESTION,
            dataset=self.dataset,
            label=self.label,
            secret="records",
            defense=defense,
            knowledge=STATIC,
            adversary=adversary,
            metric=metric,
            round=when,
            seed=self.seed,
            estimate=estimate,
            chance=chance,
            details=dict(details),
            versions=versions(),
        )
