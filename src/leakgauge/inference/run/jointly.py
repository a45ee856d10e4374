"""Adversaries that judge all rounds at once, after the last."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from leakgauge.core.threads import one_thread
from leakgauge.core.types import Params
from leakgauge.inference import Evidence, Joint, Shadow, evidence_of_round, judge_jointly
from leakgauge.inference.run.rounds import benches, defense_of_round, sent_by_clients
from leakgauge.inference.run.stage import Stage
from leakgauge.inference.spec import FRESH


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
    seen: dict[tuple[str, str], Evidence] = {}
    bench: Mapping[str, Shadow] = {}
    with one_thread():
        for number, params in enumerate(starts, start=1):
            defense = defense_of_round(scene, number, params)
            bench = benches(scene, number, params, defense)
            bench = {knowledge: bench[knowledge] for knowledge in scene.knowledge}
            for attack in attacks:
                sent = sent_by_clients(scene, number, params, scene.trials, defense)
                for knowledge, shown in evidence_of_round(attack, bench, sent).items():
                    key = knowledge, attack.name
                    seen[key] = seen[key] + shown if key in seen else shown
            progress(number)
        return {
            f"{knowledge} {attack.name}": judge_jointly(
                attack, shadow, seen[knowledge, attack.name], scene.log_prior
            )
            for attack in attacks
            for knowledge, shadow in bench.items()
        }
