"""Plays games of inference and turns what the adversaries say into measurements.

The steps are separate so that a run can be stopped between them: ``make_stage`` deals the trials,
``trajectory`` trains, ``play_round`` attacks one round given its parameters, ``weigh_rounds`` lets
those judge that see all rounds at once, and ``judge`` turns all of it into measurements.
``audit`` does them in a row.
"""

from typing import TYPE_CHECKING

from leakgauge.core.lazy import attach

if TYPE_CHECKING:
    from leakgauge.inference.run.answering import audit as audit
    from leakgauge.inference.run.judging import judge as judge
    from leakgauge.inference.run.rounds import RoundJudgements as RoundJudgements
    from leakgauge.inference.run.rounds import play_round as play_round
    from leakgauge.inference.run.rounds import weigh_rounds as weigh_rounds
    from leakgauge.inference.run.stage import Stage as Stage
    from leakgauge.inference.run.stage import make_stage as make_stage
    from leakgauge.inference.run.training import trajectory as trajectory
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "RoundJudgements": "leakgauge.inference.run.rounds",
            "Stage": "leakgauge.inference.run.stage",
            "audit": "leakgauge.inference.run.answering",
            "judge": "leakgauge.inference.run.judging",
            "make_stage": "leakgauge.inference.run.stage",
            "play_round": "leakgauge.inference.run.rounds",
            "trajectory": "leakgauge.inference.run.training",
            "weigh_rounds": "leakgauge.inference.run.rounds",
        },
    )
