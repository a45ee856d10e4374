"""Plays one stage in this process and keeps nothing on disk."""

from leakgauge.inference.run.jointly import weigh_rounds
from leakgauge.inference.run.judging import judge
from leakgauge.inference.run.rounds import play_round
from leakgauge.inference.run.stage import Stage
from leakgauge.inference.run.training import trajectory
from leakgauge.results.measurements import Measurement


def audit(stage: Stage, *, dataset: str = "data", label: str = "label") -> list[Measurement]:
    """Train, attack and judge.

    Args:
        stage: from ``leakgauge.inference.run.stage.make_stage``.
        dataset: the data's name, for the measurements.
        label: the label's name, for the measurements.
    """
    *starts, final = trajectory(stage)
    rounds = [play_round(stage, number, params) for number, params in enumerate(starts, start=1)]
    jointly = weigh_rounds(stage, starts)
    return judge(stage, rounds, final, dataset=dataset, label=label, jointly=jointly)
