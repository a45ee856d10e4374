"""Rounds of training."""

from leakgauge.training.sgd import predict, train_epoch

__all__ = ["predict", "train_epoch"]
