"""Measures how much private information leaks through the gradients of a training run."""

__version__ = "0.1.0"
