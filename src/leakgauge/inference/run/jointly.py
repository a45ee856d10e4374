"""Adversaries that judge all rounds at once, after the last."""

from collections.abc import Callable, Mapping, Sequence

from leakgauge.core.threads import one_thread
from leakgauge.core.types import Params
from leakgauge.inference.adversaries.joint import (
    Joint,
    Products,
    judge_jointly,
    products_of_round,
)
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.inference.run.observing import sent_by_clients
from leakgauge.inference.run.readings import Reading
from leakgauge.inference.run.shadows import defense_of_round, shadows_of_round
from leakgauge.inference.run.stage import Stage
from leakgauge.inference.settings import FRESH
from leakgauge.results.measurements import ACCUMULATED


def weigh_rounds(
    stage: Stage,
    starts: Sequence[Params],
    *,
    progress: Callable[[int], None] = lambda done: None,
) -> Mapping[str, Reading]:
    """Return what the attacks that see all rounds side by side say of the trials.

    The gradients are made anew, the same ones as in the rounds: kept, they would fill a disk.

    Args:
        stage: what is played.
        starts: the parameters at the start of each round.
        progress: called with the number of rounds that were seen.

    Returns:
        Their judgements by knowledge and name, ``"static joint"``; empty where no such attack
        plays, or each round draws its batches anew.
    """
    attacks = [attack for attack in stage.attacks if isinstance(attack, Joint)]
    if not attacks or stage.settings.batches == FRESH or len(starts) < 2:
        return {}
    products: dict[tuple[str, str], Products] = {}
    shadows: Mapping[str, Shadow] = {}
    with one_thread():
        for number, params in enumerate(starts, start=1):
            defense = defense_of_round(stage, number, params)
            shadows = shadows_of_round(stage, number, params, defense)
            shadows = {knowledge: shadows[knowledge] for knowledge in stage.knowledge}
            for attack in attacks:
                sent = sent_by_clients(stage, number, params, stage.trials, defense)
                for knowledge, new in products_of_round(attack, shadows, sent).items():
                    key = knowledge, attack.name
                    products[key] = products[key] + new if key in products else new
            progress(number)
        return {
            f"{knowledge} {attack.name}": Reading(
                ACCUMULATED,
                *judge_jointly(attack, shadow, products[knowledge, attack.name], stage.log_prior),
            )
            for attack in attacks
            for knowledge, shadow in shadows.items()
        }
