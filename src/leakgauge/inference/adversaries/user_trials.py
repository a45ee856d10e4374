"""User inference among shadow users: calibrates a likeness on users it was not learned from.

The shadow users are cut into folds. Each fold plays the game with a likeness that is learned from
the other folds.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from leakgauge.core.checks import require
from leakgauge.core.rng import stream
from leakgauge.inference.adversaries.calibration import HeldOut
from leakgauge.inference.adversaries.likeness import Likeness
from leakgauge.inference.adversaries.pca_forest import Projection
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.inference.adversaries.user_examples import UserExamples, reduced_gradients
from leakgauge.inference.games.users import part, records_of

Floats = NDArray[np.float64]

Ints = NDArray[np.int64]

JUDGED = 600
"""Number of judged batches of held-out shadow users."""


@dataclass(frozen=True, eq=False)
class UserTrials:
    """Trials of user inference among the shadow users.

    Attributes:
        seen: observed batches ``[n, k]``, of the users ``user`` ``[n]``.
        held: the candidate batch of each shadow user ``[U, k]``, of other records.
        seed: parts the users into folds and draws candidates.
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


def play_among_users(shadow: Shadow, view: Projection, *, batches: int = JUDGED) -> UserTrials:
    """Play the game's batches among the shadow users, each one's records parted in two.

    Batches depend on the shadow and its ``held_out_seed`` alone, not on the attack. A
    user with few records gives the same one several times.
    """
    rng = stream(shadow.held_out_seed, "rehearsal")
    codes = shadow.data.secrets[shadow.secret].cpu().numpy()
    halves = [part(rows, rng) for rows in records_of(codes)]
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
    """Learn from all folds of the users but one, and judge trials among the users of that one.

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
    """Each user ``[n]`` beside others, in a random order: index ``[n, m]``, place ``[n]``."""
    secret = rng.integers(candidates, size=len(user))
    index = np.empty((len(user), candidates), dtype=np.int64)
    for row, (one, place) in enumerate(zip(user, secret, strict=True)):
        others = rng.choice(among[among != one], size=candidates - 1, replace=False)
        index[row] = np.insert(others, place, one)
    return index, secret
