"""Settings of the estimate of mutual information; imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from leakgauge.core.checks import require, require_choice, require_count, require_positive
from leakgauge.tokens.words import (
    AUTOENCODER,
    CONCAT,
    CRITICS,
    ESTIMATORS,
    INFONCE,
    MINE,
    NWJ,
    RAW,
    SCALES,
    SEPARABLE,
    STANDARDISED,
    TRANSFORMER,
)

SLOWER = 0.2
"""Learning rate of a transformer, and of each encoder of the paper, over that of the critic.

The paper has 'a higher learning rate' for the other parts; the values are missing in the text.
"""


@dataclass(frozen=True, kw_only=True)
class CriticSettings:
    """Settings of the fit of a critic, and of the evaluation of its figures.

    Attributes:
        estimator: ``"infonce"``, ``"nwj"``, ``"smile"`` or ``"mine"``.
        token: ``"autoencoder"``, ``"transformer"``, or ``"flat"`` for vectors without an encoder.
        critic: ``"separable"`` or ``"concat"``.
        scale: ``"standardised"``, each coordinate by the fitting pairs, or ``"raw"``.
        iterations: largest number of iterations.
        batch: number of pairs per step.
        lr: learning rate of the critic (Adam with decoupled weight decay).
        weight_decay: weight decay of all weights.
        dropout: share of the inputs that a step does not see.
        check_every: iterations between two checks of the stopping pairs.
        patience: number of checks without a better value before the fit stops; 0 takes the last
            iteration, as the paper does.
        group: number of pairs in a group, the negatives of a figure; InfoNCE cannot exceed its log.
        evaluated: number of drawn pairs for stopping and reporting.
        relu_output: whether the autoencoder ends with a ReLU.
        slower: whether the autoencoder learns more slowly than the critic, as a transformer does.

    Raises:
        InputError: a value is out of its range.
    """

    estimator: str = INFONCE
    token: str = AUTOENCODER
    critic: str = SEPARABLE
    scale: str = STANDARDISED
    iterations: int = 600
    batch: int = 128
    lr: float = 5e-4
    weight_decay: float = 1e-2
    dropout: float = 0.3
    check_every: int = 25
    patience: int = 8
    group: int = 64
    evaluated: int = 1024
    relu_output: bool = False
    slower: bool = False

    def __post_init__(self) -> None:
        require_choice(self.estimator, "estimator", ESTIMATORS)
        require_choice(self.critic, "critic", CRITICS)
        require_choice(self.scale, "scale", SCALES)
        for name in ("iterations", "batch", "check_every", "group", "evaluated"):
            require_count(getattr(self, name), name)
        for name in ("batch", "group"):
            require(
                getattr(self, name) >= 2,
                f"{name} is {getattr(self, name)}; a pair is compared with others: take 2 or more",
            )
        require_positive(self.lr, "lr")
        require(0 <= self.dropout < 1, f"dropout is {self.dropout:g}; expected 0 to below 1")

    @property
    def token_lr(self) -> float:
        """Learning rate of the encoder."""
        return self.lr * (SLOWER if self.slower or self.token == TRANSFORMER else 1.0)

    @classmethod
    def paper(cls, token: str = AUTOENCODER, *, pairs: int = 200) -> Self:
        """Return the paper's settings: MINE on raw gradients, all iterations, no early stop.

        The scale, the learning rates and the widths are unknown: the text names none.

        Args:
            token: name of the encoder.
            pairs: number of pairs to learn from; a step takes a tenth of them.

        References:
            Privacy Tokens, Algorithm 1 and appendix A.

        >>> CriticSettings.paper().batch, CriticSettings.paper().iterations
        (20, 200)
        """
        return cls(
            estimator=MINE,
            token=token,
            critic=CONCAT,
            scale=RAW,
            iterations=200,
            batch=max(2, pairs // 10),
            weight_decay=0.0,
            dropout=0.0,
            patience=0,
            relu_output=True,
            slower=True,
        )


PAPER = "paper"
"""MINE with the paper's settings: a critic learns on 200 batches; both gaps are reported."""

METHODS = (*ESTIMATORS, PAPER)
"""Methods to estimate the information."""

BOUNDS = (INFONCE, NWJ, MINE, PAPER)
"""Methods with a lower bound in the mean as held-out value."""

PAIRS_OF_PAPER = 200
"""Number of batches per checkpoint in the paper (section 4.2.1)."""


def settings_of(
    token: str, method: str, *, critic: str, scale: str, iterations: int
) -> CriticSettings:
    """Return the settings of a critic; the paper's method fixes all of them.

    Args:
        token: one of ``TOKENS``.
        method: one of ``METHODS``.
        critic: one of ``CRITICS``.
        scale: one of ``SCALES``.
        iterations: largest number of iterations.
    """
    if method == PAPER:
        return CriticSettings.paper(token, pairs=PAIRS_OF_PAPER)
    return CriticSettings(
        estimator=method, token=token, critic=critic, scale=scale, iterations=iterations
    )
