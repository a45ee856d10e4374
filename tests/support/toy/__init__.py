"""A question of another package: one folder, and one entry point (``toy:QUESTION``)."""

from support.toy.question import QUESTION

__all__ = ["QUESTION"]
