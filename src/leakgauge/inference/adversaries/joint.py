"""The discriminant on the gradients of all rounds, set side by side."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.stats import multivariate_normal

from leakgauge.core.checks import require
from leakgauge.core.types import Grads
from leakgauge.inference.adversaries.adversary import with_prior
from leakgauge.inference.adversaries.calibration import HeldOut, held_out_folds
from leakgauge.inference.adversaries.discriminant import RIDGES, Discriminant, pick
from leakgauge.inference.adversaries.linear import Scatter, solve_dual
from leakgauge.inference.adversaries.record_gradients import RecordGradients, record_noise
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.inference.adversaries.views import Flat

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Joint(Discriminant):
    """The discriminant of a batch that is seen in every round, fitted on all rounds at once.

    The gradients of a batch in R rounds are one observation of R D coordinates. What the choice
    of its records does to them is the same in all rounds, and only the noise of the defense is
    fresh: a sum of the rounds' log-odds counts the former R times and cannot tell a round that
    says nothing from one that says everything. The likelihood ratio of the whole observation
    does. It needs the records' inner products summed over the rounds, and no more.

    As the model calibrates, the secrets' mean gradients draw nearer to each other, but records of
    one secret still spread more than those of another. Over the rounds this adds up, so the
    likelihood may have each secret's own covariance, along the directions in which records
    differ most; held-out records say whether it does.

    A single round is judged as ``Discriminant`` does, and so are all rounds, by their sum, where
    each round draws new batches.

    Attributes:
        directions: along which each secret may have its own covariance; 0: all share one.
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
    """The gradients of some rounds, as inner products with those of the n shadow records.

    Attributes:
        gram: of the shadow records ``[n, n]``.
        held_out: of the held-out batches ``[k, n]``, fold after fold.
        trials: of the trials' batches ``[N, n]``.
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
    """Return one round's inner products for each knowledge; trials' gradients are made once.

    Args:
        attack: gives the number of held-out folds and batches.
        shadows: the adversary's in this round, by its knowledge.
        trials: the gradients of the trials, chunk by chunk in order, leaf ``[N, *p]``.
    """
    assumed = {knowledge: attack.assumed(shadow) for knowledge, shadow in shadows.items()}
    records = {knowledge: RecordGradients(shadow) for knowledge, shadow in assumed.items()}
    of_trials: dict[str, list[Floats]] = {knowledge: [] for knowledge in assumed}
    for grads in trials:
        flat = Flat()(grads)
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


def judge_jointly(
    attack: Joint, shadow: Shadow, seen: Products, log_prior: Floats
) -> tuple[Floats, HeldOut]:
    """Return the attack's judgements of the trials and of held-out batches, seen in all rounds.

    Ridge, slope and whether the secrets share one covariance are picked on held-out shadow
    batches.

    Args:
        attack: the settings.
        shadow: of any of the rounds: its records, their secrets and the defense.
        seen: the sum of the rounds' evidence.
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
    require(done == len(seen.held_out), "the rounds judged other held-out batches")
    secret = np.concatenate(truth)
    ways = [HeldOut(np.concatenate(way), secret) for way in zip(*scores, strict=True)]
    best, slope = pick(ways)
    scatter = Scatter(seen.gram, codes, shadow.values)
    ridge, way = divmod(best, len(scores[0]) // len(ridges))
    of_trials = _ways(attack, shadow, scatter, seen.trials, ridges[ridge : ridge + 1])[way]
    held_out = HeldOut(slope * ways[best].log_odds, secret)
    return with_prior(slope * of_trials, log_prior), held_out


def _ways(
    attack: Joint, shadow: Shadow, scatter: Scatter, products: Floats, ridges: tuple[float, ...]
) -> list[Floats]:
    """Log-likelihoods of batches ``[t, m]``, from their inner products, by each way to choose from.

    Ridge after ridge; with each, first one covariance for all secrets, then one for each.
    """
    noise, size = record_noise(shadow), shadow.batch_size
    spread = Spread.of(scatter, attack.directions) if attack.directions else None
    ways = []
    for ridge, (alpha, intercept) in zip(ridges, solve_dual(scatter, ridges, noise), strict=True):
        linear = size * (products @ alpha + intercept)
        ways.append(linear)
        if spread is not None:
            added = ridge * scatter.trace + noise
            ways.append(linear + spread.beside_linear(products, size, added))
    return ways


def _held_out(attack: Discriminant, shadow: Shadow, records: RecordGradients) -> Floats:
    return np.concatenate(
        [
            records.products(Flat()(grads))
            for part in held_out_folds(shadow, folds=attack.folds, batches=attack.batches)
            for grads in shadow.held_out_gradients(part.batches)
        ]
    )


@dataclass(frozen=True, eq=False)
class Spread:
    """The covariance of each secret's records along the k directions in which records differ most.

    A linear discriminant takes all secrets' covariances for one. Where they are not, this is what
    the Gaussian log-likelihood has beside it, along those directions.

    Attributes:
        basis: ``[n, k]``; the directions are the orthonormal ``G.T @ basis``.
        means: of each secret along them ``[m, k]``.
        own: covariance of each secret's records ``[m, k, k]``.
        shared: the covariance within all groups ``[k, k]``.
    """

    basis: Floats
    means: Floats
    own: Floats
    shared: Floats

    @classmethod
    def of(cls, scatter: Scatter, directions: int) -> "Spread":
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

    def beside_linear(self, products: Floats, batch_size: int, added: float) -> Floats:
        """Return what the covariances add to a linear discriminant's log-likelihoods of batches.

        Args:
            products: of the batches with the records' gradients ``[t, n]``.
            batch_size: B; a batch is the mean of so many records.
            added: variance of each coordinate beside that of the records, at their scale.

        Returns:
            ``[t, m]``, in nats.
        """
        if len(self.shared) == 0:
            return np.zeros((len(products), len(self.means)))
        along = products @ self.basis
        level = added * np.eye(len(self.shared))
        shared = (self.shared + level) / batch_size
        parts = [
            multivariate_normal(mean, (own + level) / batch_size).logpdf(along)
            - multivariate_normal(mean, shared).logpdf(along)
            for mean, own in zip(self.means, self.own, strict=True)
        ]
        return np.reshape(parts, (len(parts), -1)).T  # logpdf drops the axis of a single batch
