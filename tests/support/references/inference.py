"""Li et al., CCS 2024, sections 4.1 to 5.1.3, literally: loops, autograd, no tricks."""

from collections.abc import Callable

import numpy as np
import torch
from sklearn.ensemble import RandomForestClassifier
from torch import Tensor, nn


def gradient(
    model: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor
) -> list[Tensor]:
    """Return the gradient of the mean loss of one batch."""
    return list(torch.autograd.grad(loss(model(x), y), list(model.parameters())))


def max_pool(values: np.ndarray, kernel: int) -> np.ndarray:
    """Apply 1-d max-pooling, window by window; the last window may be shorter."""
    return np.array([values[i : i + kernel].max() for i in range(0, len(values), kernel)])


def features(parts: list[Tensor], kernel: int) -> np.ndarray:
    """Flatten and pool each parameter's gradient, and join them."""
    return np.concatenate([max_pool(part.detach().numpy().ravel(), kernel) for part in parts])


def forest_posterior(
    model: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    shadow: list[tuple[Tensor, Tensor, int]],
    observed: list[tuple[Tensor, Tensor]],
    prior: list[float],
    *,
    trees: int,
    kernel: int,
    random_state: int,
) -> np.ndarray:
    """Return P(a | g) for each observed batch, from shadow batches balanced over the secret."""
    seen = np.array([features(gradient(model, loss, x, y), kernel) for x, y, _ in shadow])
    forest = RandomForestClassifier(n_estimators=trees, random_state=random_state)
    forest.fit(seen, [a for _, _, a in shadow])
    posteriors = []
    for x, y in observed:
        votes = forest.predict_proba([features(gradient(model, loss, x, y), kernel)])[0]
        likelihood = [(trees * vote + 0.5) / (trees + 0.5 * len(votes)) for vote in votes]
        joint = np.array([p * q for p, q in zip(likelihood, prior, strict=True)])
        posteriors.append(joint / joint.sum())
    return np.array(posteriors)


def bayes_over_rounds(posteriors: list[list[float]], prior: list[float]) -> list[float]:
    """Apply Eq. 1 to 4 to one trial: each round's posterior becomes the next round's prior."""
    belief = list(prior)
    for posterior in posteriors:
        likelihood = [p / q for p, q in zip(posterior, prior, strict=True)]
        joint = [b * ell for b, ell in zip(belief, likelihood, strict=True)]
        belief = [value / sum(joint) for value in joint]
    return belief
