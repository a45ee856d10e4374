"""Fit one attack and judge the targets."""

from time import perf_counter

import numpy as np

from leakgauge.core.checks import require
from leakgauge.core.rng import derive
from leakgauge.core.threads import one_thread
from leakgauge.membership.adversaries.adversary import Attack
from leakgauge.membership.run.judged import Judged
from leakgauge.membership.run.world import World


def play(attack: Attack, world: World, *, prepared_in: World, seed: int) -> Judged:
    """Fit an attack and judge targets.

    Args:
        attack: the attack.
        world: with the model that is judged.
        prepared_in: with the model that the attack is fitted at: the same for an adaptive one.
        seed: of its randomness.

    Raises:
        InputError: a judgement is not finite.
    """
    began = perf_counter()
    with one_thread():
        adversary = attack.fit(prepared_in.known(attack.needs), seed=derive(seed, attack.name))
        targets, validation = (
            adversary.log_odds(world.side(one, attack.needs)) for one in ("targets", "validation")
        )
    bad = int((~np.isfinite(targets)).sum())
    require(
        bad == 0 and len(targets) == len(world.targets.rows),
        f"its code gave {len(targets)} log odds for {len(world.targets.rows)} "
        f"records, {bad} of them not finite; return one finite number for each",
    )
    return Judged(targets, validation, perf_counter() - began, repr(attack))
