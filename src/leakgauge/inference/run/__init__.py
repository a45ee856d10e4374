"""Run the games of inference and measure the leakage.

The steps are separate so that a run can be stopped between them: ``make_stage`` draws the trials,
``trajectory`` trains, ``attack_round`` attacks one round given its parameters, ``attack_jointly``
attacks all rounds at once, and ``measure`` turns the results into measurements. ``audit`` runs them
in order.
"""

from typing import TYPE_CHECKING

from leakgauge.core.lazy import attach

if TYPE_CHECKING:
    from leakgauge.inference.run.answering import audit as audit
    from leakgauge.inference.run.measuring import measure as measure
    from leakgauge.inference.run.rounds import RoundResults as RoundResults
    from leakgauge.inference.run.rounds import attack_jointly as attack_jointly
    from leakgauge.inference.run.rounds import attack_round as attack_round
    from leakgauge.inference.run.stage import GameStage as GameStage
    from leakgauge.inference.run.stage import make_stage as make_stage
    from leakgauge.inference.run.training import trajectory as trajectory
else:
    _NAMES = {
        "answering": "audit",
        "measuring": "measure",
        "rounds": "RoundResults attack_jointly attack_round",
        "stage": "GameStage make_stage",
        "training": "trajectory",
    }
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {one: f"{__name__}.{module}" for module, names in _NAMES.items() for one in names.split()},
    )
