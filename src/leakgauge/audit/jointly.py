"""Adversaries that judge all rounds at once, after the last."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from leakgauge.audit.rounds import benches, defense_of_round, sent_by_clients
from leakgauge.audit.settings import FRESH
from leakgauge.audit.stage import Stage
from leakgauge.inference import Evidence, Joint, judge_jointly
from leakgauge.threads import one_thread
from leakgauge.types import Params


def weigh_rounds(
    scene: Stage,
    starts: Sequence[Params],
    *,
    progress: Callable[[int], None] = lambda done: None,
) -> Mapping[str, NDArray[np.float64]]:
    """What those attacks say of the trials that see all rounds side by side.

    The gradients are made anew, the same ones as in the rounds: kept, they would fill a disk.

    Args:
        scene: what is played.
        starts: the parameters at the start of each round.
        progress: called with the number of rounds that were seen.

    Returns:
        Log posteriors ``[n, m]`` by knowledge and name, ``"static joint"``; empty where no such
        attack is asked for, or each round draws its batches anew.
    """
    attacks = [attack for attack in scene.attacks if isinstance(attack, Joint)]
    if not attacks or scene.settings.batches == FRESH or len(starts) < 2:
        return {}
    (attack,) = attacks
    with one_thread():
        return {
            f"{knowledge} {attack.name}": _judged(scene, starts, attack, knowledge, progress)
            for knowledge in scene.knowledge
        }


def _judged(
    scene: Stage,
    starts: Sequence[Params],
    attack: Joint,
    knowledge: str,
    progress: Callable[[int], None],
) -> NDArray[np.float64]:
    def rounds() -> Iterator[Evidence]:
        for number, params in enumerate(starts, start=1):
            defense = defense_of_round(scene, number, params)
            bench = benches(scene, number, params, defense)[knowledge]
            seen = sent_by_clients(scene, number, params, scene.trials, defense)
            yield Evidence.of_round(attack, bench, seen)
            progress(number)

    defense = defense_of_round(scene, 1, starts[0])
    bench = benches(scene, 1, starts[0], defense)[knowledge]
    return judge_jointly(attack, bench, rounds(), scene.log_prior)
