"""How often intervals hold the truth, on simulated data sets with a known truth.

Run ``python tests/support/coverage.py`` for the table of ``docs/explanations/intervals.md``.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial

import numpy as np
from scipy import stats

from leakgauge.core.rng import stream
from leakgauge.membership.metrics import TPR_AT_01_FPR
from leakgauge.membership.run.scoring import Targets, blocks_of, tpr
from leakgauge.privacy.estimate import (
    Errors,
    epsilon_clopper_pearson,
    epsilon_gaussian_dp,
    epsilon_of_errors,
    epsilon_of_mu,
)
from leakgauge.results import intervals, scores, statistics
from leakgauge.results.measurements import Estimate
from leakgauge.results.scores import ADVANTAGE, AUROC, SUCCESS, TPR_AT_1_FPR, ScoredTrials

Found = Mapping[str, tuple[Estimate, float]]
"""Figures by name, each with its truth."""

DELTA = 1e-5


def normal_scores(
    rng: np.random.Generator, *, n: int, shift: float, users: int = 0, shared: float = 0.0
) -> Found:
    """N(0, 1) against N(shift, 1): n members, n others; a user's records share some variance."""
    truth = np.arange(2 * n) % 2
    block = blocks_of(2 * n, None, rng=rng)
    noise = rng.normal(size=2 * n)
    if users:
        user = (np.arange(2 * n) // 2 % users) * 2 + truth
        noise = np.sqrt(1 - shared) * noise + np.sqrt(shared) * rng.normal(size=2 * users)[user]
        block = user
    odds = shift * (noise + shift * truth - shift / 2) if shift else noise
    both = np.stack([-np.logaddexp(0, odds), -np.logaddexp(0, -odds)], axis=1)
    found = scores.score(ScoredTrials(truth, both, block), majority=0.5, rng=rng)
    if n >= 1000:
        targets = Targets(truth == 1, truth, block, (), truth == 1)
        found[TPR_AT_01_FPR] = tpr(targets, odds, 0.001)
    right = stats.norm.cdf(shift / 2)
    known = {
        AUROC: stats.norm.cdf(shift / np.sqrt(2)),
        SUCCESS: right,
        ADVANTAGE: 2 * right - 1,
        TPR_AT_1_FPR: stats.norm.sf(stats.norm.isf(0.01) - shift),
        TPR_AT_01_FPR: stats.norm.sf(stats.norm.isf(0.001) - shift),
    }
    return {name: (one, float(known[name])) for name, one in found.items()}


def several_values(rng: np.random.Generator, *, n: int, values: int) -> Found:
    """As for proportions: a secret of several values, and n trials in 50 blocks."""
    found = scores.score(_of_values(rng, n, values), majority=1 / values, rng=rng)
    return {name: (one, _true_of_values(values)[name]) for name, one in found.items()}


def _of_values(rng: np.random.Generator, n: int, values: int) -> ScoredTrials:
    truth = rng.integers(values, size=n)
    logits = rng.normal(size=(n, values)) + 1.5 * np.eye(values)[truth]
    return ScoredTrials(truth, stats.zscore(logits, axis=None), np.arange(n) % 50)


@cache
def _true_of_values(values: int) -> dict[str, float]:
    many = scores.figures(_of_values(stream(0, "truth"), 400_000, values))
    return {**many, ADVANTAGE: scores.advantage(many[SUCCESS], 1 / values)}


def psnr(rng: np.random.Generator, *, n: int) -> Found:
    """The PSNR of n records, normal around 20 dB."""
    return {"psnr": (statistics.mean_estimate(rng.normal(20, 5, size=n), unit="dB"), 20.0)}


BEST_OF_3 = 0.8463
"""Expected largest of 3 standard normal numbers."""


def of_starts(rng: np.random.Generator, *, n: int, spread: float) -> Found:
    """PSNR of n records from 3 starts that differ; the chosen one has the smallest loss."""
    start, noise = rng.normal(size=3), rng.normal(size=3)
    chosen = int((0.5 * start + np.sqrt(0.75) * noise).argmax())  # losses go with half of it
    psnr = 20 + rng.normal(0, 4, size=n) + rng.normal(0, 2, size=(3, n)) + spread * start[:, None]
    found = statistics.mean_over_starts(psnr[chosen], psnr.mean(axis=1))
    return {"psnr": (found, 20 + spread * 0.5 * BEST_OF_3)}


def rebuilt(rng: np.random.Generator, *, n: int, share: float) -> Found:
    """Whether each of n records is rebuilt."""
    hits = (rng.random(n) < share).astype(float)
    return {"share of records rebuilt": (statistics.share_estimate(hits), share)}


def accuracy(rng: np.random.Generator, *, users: int) -> Found:
    """The accuracy on records of users who differ; 0.75 on average."""
    user = np.repeat(np.arange(users), rng.integers(1, 6, size=users))
    right = rng.random(len(user)) < rng.uniform(0.5, 1.0, size=users)[user]
    return {"accuracy": (intervals.share(right, user, rng=rng), 0.75)}


def epsilon(rng: np.random.Generator, *, n: int, mu: float) -> Found:
    """Tests of Gaussian noise with n trials of each kind, at a fixed threshold."""
    cut = mu / 2
    wrong = int((rng.normal(size=n) > cut).sum()), int((rng.normal(size=n) + mu <= cut).sum())
    errors, rates = Errors(*wrong, n, n), (stats.norm.sf(cut), stats.norm.cdf(cut - mu))
    return {
        "epsilon": (epsilon_clopper_pearson(errors, DELTA), epsilon_of_errors(*rates, DELTA)),
        "epsilon of Gaussian noise": (epsilon_gaussian_dp(errors, DELTA), epsilon_of_mu(mu, DELTA)),
    }


CASES: dict[str, Callable[[np.random.Generator], Found]] = {
    "40 members, 40 others, strong leak": partial(normal_scores, n=40, shift=3.0),
    "100 and 100, weak leak": partial(normal_scores, n=100, shift=1.0),
    "200 and 200, no leak": partial(normal_scores, n=200, shift=0.0),
    "200 and 200, nearly perfect": partial(normal_scores, n=200, shift=4.5),
    "1,000 and 1,000, weak leak": partial(normal_scores, n=1000, shift=1.0),
    "1,000 and 1,000, strong leak": partial(normal_scores, n=1000, shift=3.0),
    "1,000 and 1,000 of 100 users each": partial(
        normal_scores, n=1000, shift=2.0, users=100, shared=0.5
    ),
    "4,000 and 4,000, strong leak": partial(normal_scores, n=4000, shift=3.0),
    "proportion, 5 values, 1,000 trials": partial(several_values, n=1000, values=5),
    "8 records": partial(psnr, n=8),
    "32 records": partial(psnr, n=32),
    "8 records, 3 starts that differ by 3 dB": partial(of_starts, n=8, spread=3.0),
    "8 records, 3 starts alike": partial(of_starts, n=8, spread=0.0),
    "16 records, 90 % rebuilt": partial(rebuilt, n=16, share=0.9),
    "60 users": partial(accuracy, users=60),
    "200 and 200 trials, mu 1": partial(epsilon, n=200, mu=1.0),
    "2,000 and 2,000 trials, mu 3": partial(epsilon, n=2000, mu=3.0),
}
"""Simulations by name; each call draws a data set."""


def coverage(case: str, data_sets: int) -> dict[str, float]:
    """Return by figure the share of data sets whose interval holds the truth."""
    held: dict[str, list[bool]] = {}
    for number in range(data_sets):
        for name, (one, truth) in CASES[case](stream(number, "coverage", case)).items():
            held.setdefault(name, []).append(one.low - 1e-9 <= truth <= one.high + 1e-9)
    return {name: float(np.mean(each)) for name, each in held.items()}


def table(data_sets: int = 300) -> str:
    """Return the coverage of all cases as a table in Markdown."""
    rows = [
        f"| {case} | {name.replace('_', ' ')} | {100 * share:.1f} % |"
        for case in CASES
        for name, share in coverage(case, data_sets).items()
    ]
    return "\n".join(["| data | figure | intervals that hold the truth |", "|---|---|---|", *rows])


if __name__ == "__main__":
    print(table())
