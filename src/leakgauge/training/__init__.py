"""Training: federations and their parts, local SGD, optimizers, updates, and their validity."""

from typing import TYPE_CHECKING

from leakgauge.core.lazy import attach

if TYPE_CHECKING:
    from leakgauge.training.participant import Participant as Participant
    from leakgauge.training.protocol import Protocol as Protocol
    from leakgauge.training.sgd import outputs_of as outputs_of
    from leakgauge.training.sgd import predict as predict
    from leakgauge.training.sgd import train_epoch as train_epoch
    from leakgauge.training.state import State as State
    from leakgauge.training.strategies import GradientAscent as GradientAscent
    from leakgauge.training.strategies import Honest as Honest
    from leakgauge.training.strategies import Isolate as Isolate
    from leakgauge.training.strategies import Strategy as Strategy
    from leakgauge.training.strategies import Together as Together
    from leakgauge.training.update import Update as Update
    from leakgauge.training.validity import Validity as Validity
else:
    _NAMES = {
        "participant": "Participant",
        "protocol": "Protocol",
        "sgd": "outputs_of predict train_epoch",
        "state": "State",
        "strategies": "GradientAscent Honest Isolate Strategy Together",
        "update": "Update",
        "validity": "Validity",
    }
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {name: f"{__name__}.{part}" for part, names in _NAMES.items() for name in names.split()},
    )
