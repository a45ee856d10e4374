"""Learn from shadow users how probable it is that two gradients come from one user.

Gradients are reduced to principal components. An attack learns a *likeness* of reduced gradients
from the shadow users; a softmax over the m candidates of a trial turns it into a posterior. The
likeness is calibrated by cross-validation over the shadow users.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.core.rng import stream
from leakgauge.core.types import Grads
from leakgauge.inference.adversaries.adversary import CandidateAdversary, Candidates, with_prior
from leakgauge.inference.adversaries.calibration import HeldOut, fit_slope
from leakgauge.inference.adversaries.forest import Projection
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.inference.adversaries.views import FlattenView
from leakgauge.inference.games.users import records_of, split_in_half
from leakgauge.results.statistics import Floats, Ints
from leakgauge.training.observation import sent_gradients

AXES_FROM = 512
"""Number of batches for the principal axes; their gradients are held at once."""

LEAST_EACH = 4
"""Minimum number of batches of each shadow user."""


@dataclass(frozen=True, eq=False)
class UserExamples:
    """Reduced gradients of shadow batches, each of one user.

    Attributes:
        seen: gradients as they are sent ``[n, k]``.
        clean: gradients without the defense's Gaussian noise ``[n, k]``.
        user: code of the user ``[n]``.
        resampling: B divided by the mean number of records per user; relates the variance within a
            batch to that of the user's mean.
    """

    seen: Floats
    clean: Floats
    user: Ints
    resampling: float

    def without(self, users: Ints) -> "UserExamples":
        """Return the examples without some users."""
        rest = ~np.isin(self.user, users)
        return replace(self, seen=self.seen[rest], clean=self.clean[rest], user=self.user[rest])


def observe(
    shadow: Shadow, *, batches: int, components: int, rng: np.random.Generator
) -> tuple[Projection, UserExamples]:
    """Return principal axes and bootstrapped shadow batches on them, balanced over the users.

    There are at least ``batches`` and at least ``LEAST_EACH`` per user, which the variation of a
    user's gradients needs. The axes are learned without the Gaussian noise of the defense.
    """
    rows, user = shadow.draw(max(batches, LEAST_EACH * shadow.values), rng=rng)
    clean = replace(shadow, defense=shadow.defense.without_noise())
    first = torch.cat([FlattenView()(grads) for grads in _gradients(clean, rows[:AXES_FROM])])
    view = Projection.learn(first, components, rng=rng)
    # the view accepts flat gradients; in parts, since it also makes copies
    again = ({"": part} for part in torch.split(first, 64))
    features = map(view, chain(again, _gradients(clean, rows[AXES_FROM:])))
    reduced = torch.cat(list(features)).cpu().numpy()
    noisy = clean.defense != shadow.defense
    seen = reduced_gradients(view, shadow, rows) if noisy else reduced
    records = len(shadow.data) / shadow.values
    return view, UserExamples(seen, reduced, user, shadow.batch_size / records)


def _gradients(shadow: Shadow, rows: Ints) -> Iterator[Grads]:
    """Yield the gradients that clients send; a learned defense gets no secrets here."""
    if len(rows) == 0:
        return iter(())
    return sent_gradients(
        shadow.task,
        shadow.params,
        shadow.data,
        torch.from_numpy(rows).to(shadow.data.y.device),
        defense=shadow.defense,
        noise_seed=shadow.noise_seed,
        max_bytes=shadow.max_bytes,
    )


def reduced_gradients(view: Callable[[Grads], Tensor], shadow: Shadow, rows: Ints) -> Floats:
    """Return the features ``[n, k]`` of batches ``rows [n, B]`` under ``view``."""
    reduced = torch.cat([view(grads) for grads in _gradients(shadow, rows)])
    return reduced.cpu().numpy()


Likeness = Callable[[Floats, Floats], Floats]
"""Maps reduced gradients, seen ``[n, k]`` and held ``[n, m, k]``, to log-likelihoods ``[n, m]``.

They are known up to a constant per row."""


@dataclass(frozen=True, eq=False)
class FittedLikeness(CandidateAdversary):
    """A fitted attack that scores candidates by their likeness.

    Attributes:
        settings: the attack.
        view: reduces gradients to principal components.
        likeness: the likeness of reduced gradients.
        slope: the factor of its log-likelihoods.
        log_prior: log P(a) ``[m]``.
        held_out: scaled log-likelihoods of held-out shadow users; None without calibration.
    """

    settings: object
    view: Projection
    likeness: Likeness
    slope: float
    log_prior: Floats
    held_out: HeldOut | None = None

    @property
    def details(self) -> str:
        """The settings and the slope, in one line."""
        return f"{self.settings!r}, slope {self.slope:.3g}"

    def log_posterior(self, seen: Grads, candidates: Candidates) -> Floats:
        """Return log posteriors ``[n, m]`` for gradients with leaves ``[n, *p]``."""
        observed, held = (self.view(grads).cpu().numpy() for grads in (seen, candidates.grads))
        scores = self.likeness(observed, held[candidates.index.cpu().numpy()])
        return with_prior(self.slope * scores, self.log_prior)


def calibrated(
    settings: object,
    shadow: Shadow,
    view: Projection,
    examples: UserExamples,
    learn: Callable[[UserExamples], Likeness],
    log_prior: Floats,
    *,
    folds: int,
) -> FittedLikeness:
    """Fit the slope on held-out shadow users, then learn from all."""
    trials = draw_user_trials(shadow, view)
    held_out = hold_out_users(examples, trials, learn, candidates=len(log_prior), folds=folds)
    slope, likeness = fit_slope(held_out), learn(examples)
    return FittedLikeness(settings, view, likeness, slope, log_prior, held_out.scaled(slope))


CALIBRATION_BATCHES = 600
"""Number of scored batches of held-out shadow users."""


@dataclass(frozen=True, eq=False)
class UserTrials:
    """Trials of user inference among the shadow users.

    Attributes:
        seen: observed batches ``[n, k]``.
        user: user of each batch ``[n]``.
        held: candidate batch of each shadow user ``[U, k]``, of other records.
        seed: seed of the folds and the candidates.
    """

    seen: Floats
    user: Ints
    held: Floats
    seed: int


def check_users(shadow: Shadow, *, candidates: int, folds: int) -> None:
    """Refuse shadow users with too few records for cross-validation.

    Raises:
        InputError: one has a single record, or a fold would have fewer than m users.
    """
    each = np.bincount(shadow.data.secrets[shadow.secret].cpu().numpy())
    lone, users = int((each == 1).sum()), len(each)
    require(
        lone == 0,
        f"{lone} of {users} shadow users have one record only, which makes no two batches "
        "of other records; leave these users out",
    )
    _require_enough(users, candidates, folds)


def draw_user_trials(
    shadow: Shadow, view: Projection, *, batches: int = CALIBRATION_BATCHES
) -> UserTrials:
    """Return trials among the shadow users, with the records of each user split in two halves.

    Batches depend only on the shadow and its ``held_out_seed``, not on the attack. A batch of a
    user with few records repeats some.
    """
    rng = stream(shadow.held_out_seed, "rehearsal")
    codes = shadow.data.secrets[shadow.secret].cpu().numpy()
    halves = [split_in_half(rows, rng) for rows in records_of(codes)]
    user = rng.permutation(np.arange(batches) % len(halves))

    def batch(rows: Ints) -> Ints:
        enough = len(rows) >= shadow.batch_size
        return rng.choice(rows, size=shadow.batch_size, replace=not enough)

    seen = np.stack([batch(halves[one][0]) for one in user])
    held = np.stack([batch(rows) for _, rows in halves])
    clean = replace(shadow, defense=shadow.defense.without_noise())
    reduced = reduced_gradients(view, shadow, seen), user, reduced_gradients(view, clean, held)
    return UserTrials(*reduced, shadow.held_out_seed)


def hold_out_users(
    examples: UserExamples,
    trials: UserTrials,
    learn: Callable[[UserExamples], Likeness],
    *,
    candidates: int,
    folds: int,
) -> HeldOut:
    """Return scores of trials among the users of each fold, learned from the other folds.

    Raises:
        InputError: a fold has fewer than m users.
    """
    rng = stream(trials.seed, "rehearsal folds")
    users = len(trials.held)
    _require_enough(users, candidates, folds)
    scores, truth = [], []
    for fold in np.array_split(rng.permutation(users), folds):
        chosen = np.flatnonzero(np.isin(trials.user, fold))
        index, secret = _trials(trials.user[chosen], fold, candidates, rng)
        likeness = learn(examples.without(fold))
        scores.append(likeness(trials.seen[chosen], trials.held[index]))
        truth.append(secret)
    return HeldOut(np.concatenate(scores), np.concatenate(truth))


def _require_enough(users: int, candidates: int, folds: int) -> None:
    require(
        users >= folds * candidates,
        f"{folds} folds of the shadow users need {folds * candidates}, {candidates} candidates "
        f"each; there are {users}: bring more users, or lower --candidates",
    )


def _trials(
    user: Ints, among: Ints, candidates: int, rng: np.random.Generator
) -> tuple[Ints, Ints]:
    """Return random candidates ``[n, m]`` with each user ``[n]``, and the user's place ``[n]``."""
    secret = rng.integers(candidates, size=len(user))
    index = np.empty((len(user), candidates), dtype=np.int64)
    for row, (one, place) in enumerate(zip(user, secret, strict=True)):
        others = rng.choice(among[among != one], size=candidates - 1, replace=False)
        index[row] = np.insert(others, place, one)
    return index, secret
