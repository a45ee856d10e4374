"""The networks of the papers, small and plain."""

from leakgauge.models.cnn import cnn
from leakgauge.models.mlp import mlp

__all__ = ["cnn", "mlp"]
