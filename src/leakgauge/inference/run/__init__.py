"""Asks the questions of one task and yields records.

The steps are separate so that a run can be stopped between them: ``stage`` deals the trials,
``trajectory`` trains, ``play_round`` attacks one round given its parameters, ``weigh_rounds`` lets
those judge who judge all rounds at once, and ``judge`` turns all of it into records. ``audit`` does
them in a row.
"""

from leakgauge.inference.run.jointly import weigh_rounds
from leakgauge.inference.run.judging import judge, versions
from leakgauge.inference.run.rounds import Played, play_round, trajectory
from leakgauge.inference.run.settings import (
    ADAPTIVE,
    EMPIRICAL,
    FRESH,
    REUSE,
    STATIC,
    UNIFORM,
    Settings,
)
from leakgauge.inference.run.stage import Stage, stage
from leakgauge.results.measurements import Measurement

__all__ = [
    "ADAPTIVE",
    "EMPIRICAL",
    "FRESH",
    "REUSE",
    "STATIC",
    "UNIFORM",
    "Played",
    "Settings",
    "Stage",
    "audit",
    "judge",
    "play_round",
    "stage",
    "trajectory",
    "versions",
    "weigh_rounds",
]


def audit(scene: Stage, *, dataset: str = "data", label: str = "label") -> list[Measurement]:
    """Train, attack and judge in this process.

    Args:
        scene: from ``stage``.
        dataset: the data's name, for the records.
        label: the label's name, for the records.
    """
    *starts, final = trajectory(scene)
    rounds = [play_round(scene, number, params) for number, params in enumerate(starts, start=1)]
    jointly = weigh_rounds(scene, starts)
    return judge(scene, rounds, final, dataset=dataset, label=label, jointly=jointly)
