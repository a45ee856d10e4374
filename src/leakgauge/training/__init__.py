"""Training: local SGD, the update that a client sends, and its validity."""

from leakgauge.training.sgd import predict, train_epoch
from leakgauge.training.update import Update
from leakgauge.training.validity import Validity

__all__ = ["Update", "Validity", "predict", "train_epoch"]
