"""Checks of the settings that hold for any data, and the adversaries and defenses they name."""

from dataclasses import dataclass

from leakgauge.core.checks import require
from leakgauge.core.types import Params
from leakgauge.defenses import Defense, parse_defense
from leakgauge.inference.adversaries.adversary import AnyAttack
from leakgauge.inference.adversaries.layer_inputs import layer_with_bias
from leakgauge.inference.catalog import (
    PANEL,
    PROPORTION,
    USER,
    adversaries_for,
    games_of,
    panel_of,
    parse_adversary,
)
from leakgauge.inference.games.mixing import Ratio
from leakgauge.inference.spec import ASKS, InferenceSpec
from leakgauge.inference.words import EMPIRICAL, FRESH, IID, REUSE
from leakgauge.runs.spec import check_bounds
from leakgauge.training.catalog import own_rate, parse_optimizer


@dataclass(frozen=True)
class GameAttacks:
    """The attacks on one game under one defense.

    Attributes:
        attacks: attacks in the order of the settings, without repetition.
        panel: names of the attacks in the sum; empty for none.
    """

    attacks: tuple[AnyAttack, ...]
    panel: tuple[str, ...] = ()


def attacks_for(
    spec: InferenceSpec,
    ask: str,
    defense: Defense | None = None,
    *,
    params: Params | None = None,
) -> GameAttacks:
    """Return the attacks of a game: the named ones that support it, or the panel.

    Args:
        spec: settings of the run.
        ask: name of the game.
        defense: defense of the gradients; None for none.
        params: parameters of the model; None if it is not known yet.

    Raises:
        InputError: none of the named adversaries supports the game.
    """
    noisy = defense is not None and defense.adds_noise
    several_times = spec.batches == REUSE and spec.rounds > 1
    panel = panel_of(
        ask,
        all_rounds=noisy and several_times,
        parameters=None if params is None else sum(leaf.numel() for leaf in params.values()),
        defended=defense is not None and defense.name != "none",
        divides=params is not None and layer_with_bias(params) is not None,
    )
    texts = [
        name for text in adversary_names(spec) for name in (panel if text == PANEL else (text,))
    ]
    attacks = [parse_adversary(text) for text in dict.fromkeys(texts)]
    able = tuple(attack for attack in attacks if ask in games_of(attack))
    require(
        bool(able),
        f"none of the adversaries {', '.join(spec.adversary)} supports {ask!r}; also name one of "
        f"{', '.join((PANEL, *adversaries_for(ask)))}, or name none",
    )
    return GameAttacks(able, panel if PANEL in adversary_names(spec) and len(panel) > 1 else ())


def adversary_names(spec: InferenceSpec) -> tuple[str, ...]:
    """Return the adversaries as users type them, or the panel."""
    return spec.adversary or (PANEL,)


def check(spec: InferenceSpec) -> None:
    """Refuse settings that are wrong for any data.

    Raises:
        InputError: a value is outside its bounds, a name is unknown, or settings are contradictory.
    """
    check_bounds(spec)
    asks = ", ".join(spec.ask)
    require(len(spec.ask) > 0, f"--ask is empty; name one of {', '.join(ASKS)}")
    require(len(set(spec.ask)) == len(spec.ask), f"--ask repeats a word: {asks}")
    if spec.prior == EMPIRICAL:
        require(
            USER not in spec.ask,
            "prior is 'empirical', but the candidates of user inference are equally likely; "
            "take --prior uniform",
        )
        require(
            PROPORTION not in spec.ask,
            "prior is 'empirical', but the data have no prior of shares; take --prior uniform",
        )
    if PROPORTION in spec.ask:
        Ratio(spec.ratio_bins, spec.ratio_counts).check(spec.batch_of(PROPORTION))
    require(
        spec.by_user or USER not in spec.ask,
        "by_user is false, but user inference splits whole users; leave it out",
    )
    require(
        spec.draw != IID or spec.batches != FRESH,
        f"draw is {IID!r} and batches is {FRESH!r}: a trial would hold other records in each "
        f"round, and no interval could leave out one; take batches {REUSE}",
    )
    _check_adversaries(spec)
    for ask in spec.ask:
        defenses_of(spec, ask)
    parse_optimizer(spec.optimizer, lr=spec.lr)
    require(
        spec.lr == InferenceSpec.lr or own_rate(spec.optimizer) is None,
        f"--lr {spec.lr:g} and --optimizer {spec.optimizer} name two learning rates; leave one out",
    )


def _check_adversaries(spec: InferenceSpec) -> None:
    """Refuse adversaries that are unknown, repeated, or support none of the games."""
    names = spec.adversary
    require(len(set(names)) == len(names), f"--adversary repeats a name: {', '.join(names)}")
    able = {attack.name for ask in spec.ask for attack in attacks_for(spec, ask).attacks}
    for text in names:
        name = PANEL if text == PANEL else str(parse_adversary(text).name)
        require(
            name in able or name == PANEL,
            f"the adversary {name!r} supports none of the games of --ask ({', '.join(spec.ask)})",
        )


def defenses_of(spec: InferenceSpec, ask: str) -> list[Defense]:
    """Return the different defenses of a game; the noise of some depends on its batch size.

    Raises:
        InputError: no defense is named, or a name or a setting is unknown.
    """
    require(len(spec.defense) > 0, "--defense is empty; name one, or none for no defense")
    parsed = [parse_defense(text, batch_size=spec.batch_of(ask)) for text in spec.defense]
    return list({defense.name: defense for defense in parsed}.values())
