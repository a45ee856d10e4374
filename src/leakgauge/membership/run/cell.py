"""What all measurements of one attack have in common."""

from dataclasses import dataclass

from leakgauge.core.versions import versions
from leakgauge.membership.spec import QUESTION
from leakgauge.results.measurements import ACCUMULATED, Estimate, Measurement


@dataclass(frozen=True)
class Cell:
    """What all measurements of one attack have in common."""

    dataset: str
    label: str
    defense: str
    knowledge: str
    adversary: str
    seed: int

    def measurement(self, metric: str, estimate: Estimate, chance: float) -> Measurement:
        """Return one figure."""
        return Measurement(
            question=QUESTION,
            game=QUESTION,
            dataset=self.dataset,
            label=self.label,
            secret="",
            defense=self.defense,
            knowledge=self.knowledge,
            adversary=self.adversary,
            metric=metric,
            round=ACCUMULATED,
            seed=self.seed,
            estimate=estimate,
            chance=chance,
            versions=versions(),
        )
