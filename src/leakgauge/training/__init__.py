"""Training: local SGD, optimizers, the update that a client sends, and its validity."""

from typing import TYPE_CHECKING

from leakgauge.core.lazy import attach

if TYPE_CHECKING:
    from leakgauge.training.sgd import outputs_of as outputs_of
    from leakgauge.training.sgd import predict as predict
    from leakgauge.training.sgd import train_epoch as train_epoch
    from leakgauge.training.update import Update as Update
    from leakgauge.training.validity import Validity as Validity
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "Update": "leakgauge.training.update",
            "Validity": "leakgauge.training.validity",
            "outputs_of": "leakgauge.training.sgd",
            "predict": "leakgauge.training.sgd",
            "train_epoch": "leakgauge.training.sgd",
        },
    )
