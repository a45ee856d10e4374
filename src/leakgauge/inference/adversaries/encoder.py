"""The adversary of Li et al., CCS 2024, for user inference: an encoder of pooled gradients."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from leakgauge.core.checks import require_count
from leakgauge.core.types import Grads
from leakgauge.inference.adversaries.adversary import (
    CandidateAdversary,
    CandidateAttack,
    Candidates,
    with_prior,
)
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.inference.adversaries.shadow_users import LEAST_EACH, reduced_gradients
from leakgauge.inference.adversaries.views import OTHER_KERNEL, MaxPool
from leakgauge.models import mlp
from leakgauge.results.statistics import Floats

SPEECH_CODES, FACE_CODES = 50, 100
"""The paper's embedding dimensions, for CREMA-D and for CelebA."""


@dataclass(frozen=True)
class Encoder(CandidateAttack):
    """A network that distinguishes shadow users by pooled gradients, and distances of its codes.

    An encoder with one hidden layer and a linear classifier of the shadow users are trained
    together, by cross-entropy on the gradients of shadow batches; then the classifier is dropped.
    The posterior of a candidate is the softmax over the m candidates of the negative Euclidean
    distance between the code of the observed gradient and that of the candidate's, without a
    temperature, so that it may be overconfident. Rounds are added up as in Eq. 4.

    The paper states the pooling, the depth and the length of a code. It does not state the width
    of the hidden layer, its activation, the optimizer, the epochs or the number of shadow batches.
    Here they are 128 ReLUs, Adam (rate 0.001, batches of 64), 20 epochs and 1,200 batches, all
    untuned. It does not scale the pooled gradients; ``scaled``, an addition of leakgauge, centres
    them and divides them by one number, as gradients may be too small to train on.

    Attributes:
        kernel: width of the 1-d max-pooling; 10 in the paper for speech and images.
        codes: length of a code; None for that of the paper: 100 for images, else 50.
        hidden: width of the hidden layer.
        epochs: passes over the shadow batches.
        batches: number of bootstrapped shadow batches, at least four per user.
        scaled: whether pooled gradients are centred and scaled.

    References:
        Li et al., CCS 2024, sections 4.1 (training and posterior) and 5.1.3 (settings); Snell et
        al., Prototypical networks for few-shot learning, NeurIPS 2017.
    """

    kernel: int = OTHER_KERNEL
    codes: int | None = None
    hidden: int = 128
    epochs: int = 20
    batches: int = 1200
    scaled: bool = False
    name: ClassVar[str] = "encoder"

    def __post_init__(self) -> None:
        require_count(self.kernel, "pooling kernel")
        require_count(1 if self.codes is None else self.codes, "number of units of a code")
        require_count(self.hidden, "number of hidden units")
        require_count(self.epochs, "number of epochs")
        require_count(self.batches, "number of shadow batches")

    def fit(
        self, shadow: Shadow, log_prior: Floats, *, rng: np.random.Generator
    ) -> "FittedEncoder":
        """Train encoder and classifier on shadow batches, as many of each user."""
        view = MaxPool(self.kernel)
        rows, user = shadow.draw(max(self.batches, LEAST_EACH * shadow.values), rng=rng)
        x = torch.from_numpy(reduced_gradients(view, shadow, rows)).float()
        mean, scale = _mean_and_scale(x) if self.scaled else (torch.zeros_like(x[0]), 1.0)
        images = shadow.data.x.ndim > 2
        codes = self.codes or (FACE_CODES if images else SPEECH_CODES)
        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        encoder = mlp(x.shape[1], codes, (self.hidden,), generator=generator)
        classifier = mlp(codes, shadow.values, (), generator=generator)
        train(
            nn.Sequential(encoder, classifier),
            (x - mean) / scale,
            torch.from_numpy(user),
            epochs=self.epochs,
            generator=generator,
        )
        return FittedEncoder(self, view, mean, scale, encoder, log_prior)


def _mean_and_scale(x: Tensor) -> tuple[Tensor, float]:
    mean = x.mean(dim=0)
    return mean, float((x - mean).square().mean().sqrt()) or 1.0


@dataclass(frozen=True, eq=False)
class FittedEncoder(CandidateAdversary):
    """A fitted ``Encoder``, without its classifier.

    Attributes:
        settings: the attack.
        view: maps gradients to pooled features ``[n, k]``.
        mean: ``[k]``, subtracted from features.
        scale: divisor of features.
        encoder: maps ``[n, k]`` to codes ``[n, c]``.
        log_prior: log P(a) ``[m]``.
    """

    settings: Encoder
    view: MaxPool
    mean: Tensor
    scale: float
    encoder: nn.Module
    log_prior: Floats

    @property
    def details(self) -> str:
        """The settings in one line."""
        return repr(self.settings)

    def log_posterior(self, seen: Grads, candidates: Candidates) -> Floats:
        """Return log posteriors ``[n, m]`` for gradients with leaves ``[n, *p]``."""
        observed, held = self.codes_of(seen), self.codes_of(candidates.grads)
        apart = observed[:, None] - held[candidates.index.cpu().numpy()]
        return with_prior(-np.linalg.norm(apart, axis=2), self.log_prior)

    def codes_of(self, grads: Grads) -> Floats:
        """Return the codes ``[n, c]`` of gradients with leaves ``[n, *p]``."""
        with torch.no_grad():
            features = self.view(grads).cpu().float()
            codes = self.encoder((features - self.mean) / self.scale)
        return np.asarray(codes.double().numpy())


STEP = 1e-3
"""Learning rate of Adam."""

TRAINING_BATCH = 64


def train(
    model: nn.Module, x: Tensor, y: Tensor, *, epochs: int, generator: torch.Generator
) -> None:
    """Train a classifier in place by Adam on the cross-entropy.

    Args:
        model: features to logits.
        x: features ``[n, k]``.
        y: user codes ``[n]``.
        epochs: passes over all rows.
        generator: source of all randomness.
    """
    optimizer = torch.optim.Adam(model.parameters(), lr=STEP)
    for _ in range(epochs):
        order = torch.randperm(len(x), generator=generator)
        for batch in torch.split(order, TRAINING_BATCH):
            optimizer.zero_grad()
            torch.autograd.backward(cross_entropy(model(x[batch]), y[batch]))
            optimizer.step()
