"""The discriminant on the concatenated gradients of all rounds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy
from scipy import linalg

from leakgauge.core.checks import require
from leakgauge.core.types import Grads
from leakgauge.inference.adversaries.adversary import with_prior
from leakgauge.inference.adversaries.calibration import HeldOut, held_out_folds
from leakgauge.inference.adversaries.discriminant import RIDGES, Discriminant, pick
from leakgauge.inference.adversaries.linear import Scatter, solve_dual
from leakgauge.inference.adversaries.record_gradients import RecordGradients, record_noise
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.inference.adversaries.views import FlattenView
from leakgauge.results.statistics import Floats


@dataclass(frozen=True)
class Joint(Discriminant):
    """The discriminant of a batch that is observed in every round, fitted on all rounds at once.

    The gradients of a batch in R rounds are one observation of R D coordinates. The effect
    of its choice of records is the same in all rounds, and only the noise of the defense is
    fresh: a sum of the rounds' log-odds counts the former R times and cannot distinguish an
    uninformative round from an informative one. The likelihood ratio of the whole observation
    can. It needs only the records' inner products summed over the rounds.

    As the model calibrates, the mean gradients of the secrets converge, but records of one
    secret still vary more than those of another. Over the rounds this adds up, so the likelihood
    may have a covariance for each secret, along the directions in which records differ most;
    held-out records decide.

    For a single round it equals ``Discriminant``; if each round draws new batches, the rounds are
    added up.

    Attributes:
        directions: number of directions with a covariance for each secret; 0 for a shared one.
    """

    directions: int = 20
    name: ClassVar[str] = "joint"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.directions >= 0, f"number of directions is {self.directions}; expected 0 or more"
        )


@dataclass(frozen=True, eq=False)
class Products:
    """Inner products of the gradients of some rounds with those of the n shadow records.

    Attributes:
        gram: products of the shadow records ``[n, n]``.
        held_out: products of the held-out batches ``[k, n]``, fold after fold.
        trials: products of the trials' batches ``[N, n]``.
    """

    gram: Floats
    held_out: Floats
    trials: Floats

    def __add__(self, other: "Products") -> "Products":
        return Products(
            self.gram + other.gram, self.held_out + other.held_out, self.trials + other.trials
        )


def products_of_round(
    attack: Discriminant, shadows: Mapping[str, Shadow], trials: Iterable[Grads]
) -> dict[str, Products]:
    """Return the inner products of one round for each knowledge.

    The gradients of the trials are computed once.

    Args:
        attack: settings with the number of held-out folds and batches.
        shadows: shadows of this round by knowledge.
        trials: the gradients of the trials, chunk by chunk in order, leaf ``[N, *p]``.
    """
    assumed = {knowledge: attack.assumed(shadow) for knowledge, shadow in shadows.items()}
    records = {knowledge: RecordGradients(shadow) for knowledge, shadow in assumed.items()}
    of_trials: dict[str, list[Floats]] = {knowledge: [] for knowledge in assumed}
    for grads in trials:
        flat = FlattenView()(grads)
        for knowledge, products in of_trials.items():
            products.append(records[knowledge].products(flat))
    return {
        knowledge: Products(
            records[knowledge].gram(),
            _held_out(attack, shadow, records[knowledge]),
            np.concatenate(of_trials[knowledge]),
        )
        for knowledge, shadow in assumed.items()
    }


def joint_posterior(
    attack: Joint, shadow: Shadow, seen: Products, log_prior: Floats
) -> tuple[Floats, HeldOut]:
    """Return the posteriors of the trials and the log-odds of held-out batches, from all rounds.

    Held-out shadow batches select the ridge, the slope and whether the secrets share one
    covariance.

    Args:
        attack: the settings.
        shadow: records, their secrets and the defense; the same in every round.
        seen: sum of the inner products over the rounds.
        log_prior: ``[m]``.

    Returns:
        Log posteriors ``[N, m]`` of the trials, and log-odds of the held-out shadow batches.
    """
    shadow = attack.assumed(shadow)
    codes = shadow.data.secrets[shadow.secret].cpu().numpy()
    ridges = RIDGES if attack.ridge is None else (attack.ridge,)
    scores: list[list[Floats]] = []
    truth, done = [], 0
    for part in held_out_folds(shadow, folds=attack.folds, batches=attack.batches):
        rows = slice(done, done + len(part.secret))
        done, known = rows.stop, np.ix_(part.rest, part.rest)
        scatter = Scatter(seen.gram[known], codes[part.rest], shadow.values)
        products = seen.held_out[rows][:, part.rest]
        scores.append(_ways(attack, shadow, scatter, products, ridges))
        truth.append(part.secret)
    require(done == len(seen.held_out), "the rounds scored other held-out batches")
    secret = np.concatenate(truth)
    ways = [HeldOut(np.concatenate(way), secret) for way in zip(*scores, strict=True)]
    best, slope = pick(ways)
    scatter = Scatter(seen.gram, codes, shadow.values)
    ridge, way = divmod(best, len(scores[0]) // len(ridges))
    of_trials = _ways(attack, shadow, scatter, seen.trials, ridges[ridge : ridge + 1])[way]
    return with_prior(slope * of_trials, log_prior), ways[best].scaled(slope)


def _ways(
    attack: Joint, shadow: Shadow, scatter: Scatter, products: Floats, ridges: tuple[float, ...]
) -> list[Floats]:
    """Return log-likelihoods of batches ``[t, m]`` for each candidate model.

    The order is by ridge, and for each ridge first one covariance for all secrets, then one per
    secret.
    """
    noise, size = record_noise(shadow), shadow.batch_size
    spread = GroupSpread.of(scatter, attack.directions) if attack.directions else None
    ways = []
    for ridge, (alpha, intercept) in zip(ridges, solve_dual(scatter, ridges, noise), strict=True):
        linear = size * (products @ alpha + intercept)
        ways.append(linear)
        if spread is not None:
            added = ridge * scatter.trace + noise
            ways.append(linear + spread.added_log_likelihood(products, size, added))
    return ways


def _held_out(attack: Discriminant, shadow: Shadow, records: RecordGradients) -> Floats:
    return np.concatenate(
        [
            records.products(FlattenView()(grads))
            for part in held_out_folds(shadow, folds=attack.folds, batches=attack.batches)
            for grads in shadow.held_out_gradients(part.batches)
        ]
    )


@dataclass(frozen=True, eq=False)
class GroupSpread:
    """The covariance of each secret's records along the k directions in which records differ most.

    A linear discriminant assumes one covariance for all secrets. If they differ, this class gives
    the remaining terms of the Gaussian log-likelihood, along those directions.

    Attributes:
        basis: ``[n, k]``; the directions are the orthonormal ``G.T @ basis``.
        means: mean of each secret along the directions ``[m, k]``.
        own: covariance of each secret's records ``[m, k, k]``.
        shared: the covariance within all groups ``[k, k]``.
    """

    basis: Floats
    means: Floats
    own: Floats
    shared: Floats

    @classmethod
    def of(cls, scatter: Scatter, directions: int) -> "GroupSpread":
        """Return the spread along ``directions`` directions, or along all if fewer exist."""
        n = len(scatter.codes)
        first = max(0, n - directions)
        sizes, vectors = linalg.eigh(scatter.within, subset_by_index=(first, n - 1))
        real = sizes > 1e-9 * scatter.trace  # the rest is rounding
        sizes, vectors = sizes[real], vectors[:, real]
        basis = scatter.centre(vectors) / np.sqrt(scatter.freedom * sizes)
        along = scatter.gram @ basis
        centred = scatter.centre(along)
        own = [
            centred[rows].T @ centred[rows] / max(1, rows.sum() - 1)
            for rows in (scatter.codes == value for value in range(scatter.values))
        ]
        return cls(basis, scatter.groups.T @ along, np.array(own), np.diag(sizes))

    def added_log_likelihood(self, products: Floats, batch_size: int, added: float) -> Floats:
        """Return the terms that the covariances add to a linear discriminant's log-likelihoods.

        Args:
            products: inner products of the batches with the records' gradients ``[t, n]``.
            batch_size: B, number of records in a batch.
            added: additional variance of each coordinate, at the scale of a record.

        Returns:
            ``[t, m]``, in nats.
        """
        if len(self.shared) == 0:
            return np.zeros((len(products), len(self.means)))
        along = products @ self.basis
        level = added * np.eye(len(self.shared))
        shared = (self.shared + level) / batch_size
        parts = [
            scipy.stats.multivariate_normal(mean, (own + level) / batch_size).logpdf(along)
            - scipy.stats.multivariate_normal(mean, shared).logpdf(along)
            for mean, own in zip(self.means, self.own, strict=True)
        ]
        return np.reshape(parts, (len(parts), -1)).T  # logpdf drops the axis of a single batch
