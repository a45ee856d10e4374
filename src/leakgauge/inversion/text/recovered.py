"""Recovered text, its scores against the true text, and guesses that use no gradient."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.inversion.metrics.table import SEQUENCES, TOKEN_ACCURACY
from leakgauge.inversion.words import FREQUENT, NEAREST

CONFIRMED = 1e-3
"""Largest relative distance of a confirmed batch's gradient from the observed one."""


@dataclass(frozen=True)
class RecoveredText:
    """Sequences that were read from one gradient, without knowledge of the truth.

    Attributes:
        sequences: tokens of each distinct sequence. A token that could not be read is -1.
        candidates: the tokens that pass the first check, by position.
        ranks: dimensions of the span of the first and the second layer's inputs.
        distance: largest relative distance of a token of ``sequences`` from the spans.
        residual: distance of the gradient of ``sequences`` from the observed one, relative to the
            latter; None where it was not computed.
        allowed: largest residual that the true batch can have.
        stopped: one line that says why something is missing; empty if nothing is known to be.
        tokens: where sequences are missing, the set of tokens that the embedding's gradient names.
    """

    sequences: tuple[tuple[int, ...], ...] = ()
    candidates: tuple[tuple[int, ...], ...] = ()
    ranks: tuple[int, ...] = ()
    distance: float = 0.0
    residual: float | None = None
    allowed: float = CONFIRMED
    stopped: str = ""
    tokens: tuple[int, ...] = ()

    @property
    def confirmed(self) -> bool:
        """Whether the recovered batch, as a whole, has the observed gradient."""
        return self.residual is not None and self.residual < self.allowed


@dataclass(frozen=True)
class TextScore:
    """Shares of a batch that were recovered.

    Attributes:
        tokens: share of the true tokens that were found at their place.
        sequences: share of the true sequences that were found without an error.
        by_position: share of tokens found, by position.
        n: number of true tokens.
    """

    tokens: float
    sequences: float
    by_position: tuple[float, ...]
    n: int


def score_text(
    found: Sequence[Sequence[int]], truth: Sequence[Sequence[int]], *, skip: int | None = None
) -> TextScore:
    """Return the shares of true tokens and sequences that were found; for scoring only.

    Each true sequence is compared with one found sequence; the pairs are those with the most equal
    tokens in all. A sequence that was found once counts for each of its copies.

    Args:
        found: token sequences, as in ``RecoveredText.sequences``.
        truth: the sequences of the batch.
        skip: the token of padding, which is ignored at both ends of a true sequence, and at the
            beginning of a found one.

    Raises:
        InputError: the true sequences have no tokens.

    >>> score_text([[1, 2, 3], [4, 5, 0]], [[4, 5, 6], [1, 2, 3]])
    TextScore(tokens=0.8333333333333334, sequences=0.5, by_position=(1.0, 1.0, 0.5), n=6)
    """
    real = [_begun(_without_end(_whole(one), skip), skip) for one in truth]
    found = [_begun(_whole(one), skip) for one in found]
    lengths = [len(one) for one in real]
    require(sum(lengths) > 0, "the true sequences have no tokens to compare with")
    distinct = sorted(set(real))
    copies = np.array([real.count(one) for one in distinct])
    equal = np.zeros((len(distinct), max(len(found), len(distinct))))
    for row, one in enumerate(distinct):
        for column, other in enumerate(found):
            equal[row, column] = sum(a == b for a, b in zip(one, other, strict=False))
    rows, columns = linear_sum_assignment(-equal * copies[:, None])
    hits, total, whole = np.zeros(max(lengths)), np.zeros(max(lengths)), 0
    for row, column in zip(rows, columns, strict=True):
        one, weight = distinct[row], copies[row]
        other = tuple(found[column]) if column < len(found) else ()
        whole += weight * (other == one)
        for place, token in enumerate(one):
            total[place] += weight
            hits[place] += weight * (place < len(other) and other[place] == token)
    return TextScore(
        float(hits.sum() / total.sum()),
        float(whole / len(real)),
        tuple((hits / total).tolist()),
        int(total.sum()),
    )


def _whole(tokens: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(token) for token in tokens)


def _begun(tokens: tuple[int, ...], skip: int | None) -> tuple[int, ...]:
    return tuple(itertools.dropwhile(lambda token: token == skip, tokens))


def _without_end(tokens: tuple[int, ...], skip: int | None) -> tuple[int, ...]:
    while skip is not None and tokens and tokens[-1] == skip:
        tokens = tokens[:-1]
    return tokens


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
