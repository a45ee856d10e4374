"""An encoder of the principal components of gradients for user inference; not in the paper."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import nn

from leakgauge.core.checks import require, require_count, require_positive
from leakgauge.inference.adversaries.adversary import CandidateAttack
from leakgauge.inference.adversaries.encoder import train
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.inference.adversaries.shadow_users import (
    FittedLikeness,
    UserExamples,
    calibrated,
    check_users,
    observe,
)
from leakgauge.models import mlp
from leakgauge.results.statistics import Floats


@dataclass(frozen=True)
class PcaEncoder(CandidateAttack):
    """An encoder that distinguishes shadow users by principal components, and distances of codes.

    It differs from ``Encoder``, that of the paper, in the inputs of the network: the leading
    principal components of the gradients in place of maxima of windows, all divided by one number,
    since a number for each would raise noise to the level of the signal. Training fits the encoder
    and a linear classifier of the shadow users together on the gradients of shadow batches, then
    drops the classifier. The posterior is a softmax over the m candidates of the negative Euclidean
    distance between the codes of the observed gradient and of the candidate's, divided by a
    temperature; a temperature of None is fitted on held-out shadow users, so that log-odds of
    rounds can be added.

    Attributes:
        components: maximum number of principal components.
        hidden: width of the hidden layer.
        codes: length of a code.
        epochs: passes over the shadow batches.
        batches: number of bootstrapped shadow batches, at least four per user.
        temperature: divisor of the distance; None fits it.
        folds: number of folds of the shadow users to fit the temperature.
    """

    components: int = 128
    hidden: int = 128
    codes: int = 64
    epochs: int = 20
    batches: int = 1200
    temperature: float | None = 1.0
    folds: int = 3
    name: ClassVar[str] = "pca-encoder"

    def __post_init__(self) -> None:
        require_count(self.components, "number of components")
        require_count(self.hidden, "number of hidden units")
        require_count(self.codes, "number of units of a code")
        require_count(self.epochs, "number of epochs")
        require_count(self.batches, "number of shadow batches")
        if self.temperature is not None:
            require_positive(self.temperature, "temperature")
        require(self.folds >= 2, f"number of folds is {self.folds}; expected 2 or more")

    def check(self, shadow: Shadow, values: int) -> None:
        """Refuse users with too few records for cross-validation, if it is needed."""
        if self.temperature is None:
            check_users(shadow, candidates=values, folds=self.folds)

    def fit(self, shadow: Shadow, log_prior: Floats, *, rng: np.random.Generator) -> FittedLikeness:
        """Fit the temperature on held-out shadow users if it is None; then train on all."""
        self.check(shadow, len(log_prior))
        view, examples = observe(shadow, batches=self.batches, components=self.components, rng=rng)
        seed = int(rng.integers(2**62))

        def learn(examples: UserExamples) -> Codes:
            return self._train(examples, torch.Generator().manual_seed(seed))

        if self.temperature is None:
            return calibrated(self, shadow, view, examples, learn, log_prior, folds=self.folds)
        return FittedLikeness(self, view, learn(examples), 1 / self.temperature, log_prior)

    def _train(self, examples: UserExamples, generator: torch.Generator) -> "Codes":
        users, user = np.unique(examples.user, return_inverse=True)
        mean = examples.seen.mean(axis=0)
        scale = float(np.sqrt(examples.seen.var(axis=0).mean())) or 1.0
        x, y = torch.from_numpy((examples.seen - mean) / scale), torch.from_numpy(user)
        body = mlp(x.shape[1], self.codes, (self.hidden,), generator=generator)
        encoder = nn.Sequential(body, nn.ReLU()).double()
        classifier = mlp(self.codes, len(users), (), generator=generator).double()
        train(nn.Sequential(encoder, classifier), x, y, epochs=self.epochs, generator=generator)
        return Codes(mean, scale, encoder)


@dataclass(frozen=True, eq=False)
class Codes:
    """The trained encoder, without its classifier.

    Attributes:
        mean: ``[k]``, subtracted from reduced gradients.
        scale: divisor of reduced gradients.
        encoder: maps ``[n, k]`` to codes ``[n, c]``.
    """

    mean: Floats
    scale: float
    encoder: nn.Module

    def __call__(self, seen: Floats, held: Floats) -> Floats:
        """Return negative distances ``[n, m]`` of codes, for ``[n, k]`` and ``[n, m, k]``."""
        return -np.asarray(np.linalg.norm(self.of(seen)[:, None] - self.of(held), axis=2))

    def of(self, features: Floats) -> Floats:
        """Return codes ``[..., c]`` of reduced gradients ``[..., k]``."""
        with torch.no_grad():
            codes = self.encoder(torch.from_numpy((features - self.mean) / self.scale))
        return np.asarray(codes.numpy())
