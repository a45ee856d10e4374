"""Critics: networks that score how well data features and a token belong together."""

import math

import torch
from torch import Tensor, nn

from leakgauge.core.checks import require_choice
from leakgauge.tokens.words import CONCAT, CRITICS, SEPARABLE

HIDDEN, EMBEDDED = 256, 128
"""Widths of the two layers that embed features and tokens; the paper names 128."""


class Critic(nn.Module):
    """Embeds features and tokens in 128 numbers each, and scores every pair of them.

    Both kinds begin constant, so their first value is that of an ignorant critic.

    Args:
        features: length of the data features.
        token: length of the tokens.
        kind: ``"concat"``, the paper's: two layers on both embeddings side by side; or
            ``"separable"``: the inner product of embeddings that have a linear path beside their
            two layers. It learns from fewer pairs.
        start: the constant.

    References:
        Privacy Tokens, appendix A.
    """

    def __init__(self, features: int, token: int, *, kind: str = SEPARABLE, start: float) -> None:
        super().__init__()
        require_choice(kind, "critic", CRITICS)
        embed = _embedding if kind == CONCAT else Embedding
        self.of_features = embed(features)
        self.of_tokens = embed(token)
        self.constant = nn.Parameter(torch.tensor(float(start)))
        self.head = Concat() if kind == CONCAT else Product()

    def forward(self, features: Tensor, tokens: Tensor) -> Tensor:
        """Return the scores ``[K, M]`` of ``features [K, d]`` against ``tokens [M, t]``."""
        scores: Tensor = self.head(self.of_features(features), self.of_tokens(tokens))
        return scores + self.constant


class Concat(nn.Module):
    """Two fully connected layers on two embeddings side by side.

    The first layer is linear in both, so each embedding passes it once, not once a pair.
    """

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(EMBEDDED, EMBEDDED)
        self.right = nn.Linear(EMBEDDED, EMBEDDED, bias=False)
        self.last = nn.Linear(EMBEDDED, 1, bias=False)
        nn.init.zeros_(self.last.weight)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the scores ``[K, M]``."""
        hidden = torch.relu(self.left(left)[:, None] + self.right(right)[None])
        scores: Tensor = self.last(hidden)
        return scores.squeeze(-1)


class Product(nn.Module):
    """The inner product of two embeddings, times a learnt scale that begins at 0."""

    GROWTH = 10.0
    """Makes the scale learn as fast as the other weights."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(()))

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the scores ``[K, M]``."""
        return self.GROWTH / math.sqrt(EMBEDDED) * self.scale * (left @ right.T)


class Embedding(nn.Module):
    """Two layers, and a linear path beside them: much of what gradients tell is linear."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.line, self.layers = nn.Linear(size, EMBEDDED), _embedding(size)

    def forward(self, values: Tensor) -> Tensor:
        """Return the embedded ``values [N, size]``, ``[N, 128]``."""
        embedded: Tensor = self.line(values) + self.layers(values)
        return embedded


def _embedding(size: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(size, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, EMBEDDED))
