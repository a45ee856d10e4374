"""Each secret's own covariance, against the Gaussian likelihood in the primal, and planted."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from leakgauge.core.rng import stream
from leakgauge.core.types import Dataset
from leakgauge.inference import Joint
from leakgauge.inference.adversaries.joint import GroupSpread
from leakgauge.inference.adversaries.linear import Scatter, solve_dual
from leakgauge.inference.run import audit
from leakgauge.results.measurements import ACCUMULATED
from support.defenses import dpsgd
from support.figures import auroc
from support.synthetic import records, small_stage

BATCH = 4


def drawn(values: int) -> tuple[np.ndarray, np.ndarray]:
    """Return records in five coordinates, with a mean and a covariance per group."""
    rng = stream(3, "records")
    codes = np.arange(90) % values
    shapes = rng.normal(size=(values, 5, 5))
    return np.einsum("nij,nj->ni", shapes[codes], rng.normal(size=(90, 5))) + codes[:, None], codes


@pytest.mark.parametrize("values", [2, 3])
def test_along_all_directions_it_is_the_gaussian_likelihood(values: int) -> None:
    g, codes = drawn(values)
    seen = stream(4, "batches").normal(size=(7, 5))
    scatter = Scatter(g @ g.T, codes, values)
    ridge, noise = 0.03, 0.2
    ((alpha, intercept),) = solve_dual(scatter, (ridge,), noise)
    pooled = sum((np.sum(codes == a) - 1) * np.cov(g[codes == a].T) for a in range(values))
    added = ridge * np.trace(pooled / (90 - values)) + noise
    products = seen @ g.T
    found = BATCH * (products @ alpha + intercept) + GroupSpread.of(
        scatter, 50
    ).added_log_likelihood(products, BATCH, added)
    wanted = np.stack(
        [
            multivariate_normal(
                g[codes == a].mean(axis=0), (np.cov(g[codes == a].T) + added * np.eye(5)) / BATCH
            ).logpdf(seen)
            for a in range(values)
        ],
        axis=1,
    )
    same = [scores - scores.mean(axis=1, keepdims=True) for scores in (found, wanted)]
    np.testing.assert_allclose(*same, rtol=1e-8, atol=1e-8)


def test_it_takes_the_directions_in_which_records_differ_most() -> None:
    g, codes = drawn(2)
    centred = g - np.stack([g[codes == a].mean(axis=0) for a in range(2)])[codes]
    _, sizes, axes = np.linalg.svd(centred)
    spread = GroupSpread.of(Scatter(g @ g.T, codes, 2), 2)
    directions = g.T @ spread.basis
    np.testing.assert_allclose(np.abs(axes[:2] @ directions)[:, ::-1], np.eye(2), atol=1e-8)
    np.testing.assert_allclose(np.diag(spread.shared)[::-1], sizes[:2] ** 2 / 88)


def test_records_that_are_all_the_same_have_no_direction() -> None:
    g, codes = np.ones((8, 3)), np.arange(8) % 2
    spread = GroupSpread.of(Scatter(g @ g.T, codes, 2), 20)
    assert spread.basis.shape == (8, 0)
    np.testing.assert_array_equal(
        spread.added_log_likelihood(g @ g.T, BATCH, 0.1), np.zeros((8, 2))
    )


def wider() -> Dataset:
    """Return records with a secret that changes only the variance of a feature."""
    data = records(0.0)
    x = data.x.clone()
    x[:, 0] *= torch.where(data.secrets["s"] == 1, 3.0, 0.3)
    return replace(data, x=x)


@pytest.mark.slow
@pytest.mark.calibration
def test_it_tells_secrets_that_differ_in_nothing_but_their_spread() -> None:
    defense = dpsgd(clip=1.0, noise=0.3, batch_size=8)
    found = []
    for directions in (0, 20):
        attack = Joint(ridge=0.03, directions=directions, batches=150)
        stage = small_stage(wider(), attack, defense=defense, rounds=4, trials=400)
        found.append(auroc(audit(stage), ACCUMULATED))
    assert found[1] > found[0] + 0.05
