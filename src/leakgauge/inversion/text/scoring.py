"""Scores of rebuilt token sequences, and guesses of them that use no gradient."""

import torch
from torch import Tensor

from leakgauge.inversion.metrics.table import SEQUENCES, TOKEN_ACCURACY
from leakgauge.inversion.words import FREQUENT, NEAREST


def token_scores(x: Tensor, truth: Tensor, counted: Tensor) -> dict[str, Tensor]:
    """Return the scores of sequences ``[N, L]``, one value per sequence ``[N]``, by metric.

    Args:
        x: rebuilt tokens, in the order of the truth.
        truth: true tokens.
        counted: whether a token counts, bool; padding does not.

    >>> truth = torch.tensor([[5, 6, 0]])
    >>> token_scores(torch.tensor([[5, 7, 9]]), truth, truth != 0)["token_accuracy"]
    tensor([0.5000], dtype=torch.float64)
    """
    hits = ((x == truth) & counted).sum(1).double()
    wanted = counted.sum(1)
    return {TOKEN_ACCURACY: hits / wanted.clamp(min=1), SEQUENCES: (hits == wanted).double()}


def frequent_tokens(public: Tensor) -> Tensor:
    """Return the most frequent token at each position ``[L]`` of sequences ``[n, L]``.

    >>> frequent_tokens(torch.tensor([[3, 1], [3, 2], [4, 2]])).tolist()
    [3, 2]
    """
    return public.mode(dim=0).values


def guessed_tokens(public: Tensor, frequent: Tensor, truth: Tensor) -> dict[str, Tensor]:
    """Return guesses of the sequences ``truth [N, L]`` by name; ``NEAREST`` uses the truth."""
    nearest = torch.stack([(public != row).sum(1).argmin() for row in truth])
    return {FREQUENT: frequent.expand_as(truth), NEAREST: public[nearest]}
