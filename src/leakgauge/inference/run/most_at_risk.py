"""The user whose batches an adversary names most often: most at risk in user inference."""

from dataclasses import dataclass

import numpy as np

from leakgauge.core.checks import require
from leakgauge.results.measurements import Estimate
from leakgauge.results.scores import ScoredTrials, hits
from leakgauge.results.statistics import Ints, clopper_pearson

FEWEST = 20
"""Trials that a user needs: half of them choose the user, the other half judge."""


@dataclass(frozen=True)
class MostAtRisk:
    """The user most at risk.

    Attributes:
        user: code of the user.
        success: share of this user's batches that the adversary names as the user's.
        of: the number of users among whom it was chosen.
    """

    user: int
    success: Estimate
    of: int


def most_at_risk(judged: ScoredTrials, whose: Ints) -> MostAtRisk | None:
    """Return the user whose batches are named most often; None where two users cannot be compared.

    The highest of many rates is high by luck alone. So one half of each user's trials chooses the
    user, and the other half gives the figure, with an exact binomial interval: given the user,
    trials are independent draws of a batch.

    Args:
        judged: the trials of user inference.
        whose: the user ``[n]`` that each trial's batch belongs to.

    Raises:
        InputError: there are not as many users as trials.

    >>> truth = np.zeros(80, dtype=np.int64)
    >>> whose = truth + np.arange(80) % 2
    >>> named = np.stack([whose == 1, whose != 1], axis=1)  # user 1 always, user 0 never
    >>> worst = most_at_risk(ScoredTrials(truth, np.log(named * 0.8 + 0.1), truth), whose)
    >>> worst.user, worst.success.value, round(worst.success.low, 3), worst.success.n
    (1, 1.0, 0.832, 20)
    """
    require(
        len(whose) == len(judged.truth),
        f"{len(whose)} users for {len(judged.truth)} trials; expected one for each",
    )
    right = hits(judged)
    of_user = {int(user): right[whose == user] for user in np.unique(whose)}
    able = {user: each for user, each in of_user.items() if len(each) >= FEWEST}
    if len(able) < 2:
        return None
    chosen = max(able, key=lambda user: float(able[user][::2].mean()))
    return MostAtRisk(chosen, _share(able[chosen][1::2]), len(able))


def _share(right: np.ndarray) -> Estimate:
    n = len(right)
    wrong = n - int(right.sum())  # a tie counts as wrong
    low, high = clopper_pearson(wrong, n)
    return Estimate(1 - wrong / n, 1 - high, 1 - low, n)
