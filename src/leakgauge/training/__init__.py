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
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "GradientAscent": "leakgauge.training.strategies",
            "Honest": "leakgauge.training.strategies",
            "Isolate": "leakgauge.training.strategies",
            "Participant": "leakgauge.training.participant",
            "Protocol": "leakgauge.training.protocol",
            "State": "leakgauge.training.state",
            "Strategy": "leakgauge.training.strategies",
            "Together": "leakgauge.training.strategies",
            "Update": "leakgauge.training.update",
            "Validity": "leakgauge.training.validity",
            "outputs_of": "leakgauge.training.sgd",
            "predict": "leakgauge.training.sgd",
            "train_epoch": "leakgauge.training.sgd",
        },
    )
