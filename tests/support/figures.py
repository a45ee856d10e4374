"""Pick measurements from a run."""

from leakgauge.core.knowledge import ADAPTIVE
from leakgauge.results.measurements import Measurement
from leakgauge.results.scores import AUROC


def auroc(found: list[Measurement], when: int | str, knowledge: str = ADAPTIVE) -> float:
    """Return the only AUROC of a round for an adversary with this knowledge."""
    (one,) = [
        record
        for record in found
        if (record.round, record.metric, record.knowledge) == (when, AUROC, knowledge)
    ]
    return one.estimate.value
