"""The adversaries and defenses that settings name."""

from dataclasses import dataclass

from leakgauge.core.checks import require
from leakgauge.defenses import Defense, parse_defense
from leakgauge.inference.adversaries.adversary import AnyAttack
from leakgauge.inference.catalog import PANEL, adversaries_for, games_of, panel_of, parse_adversary
from leakgauge.inference.spec import InferenceSpec
from leakgauge.inference.words import REUSE


@dataclass(frozen=True)
class GameAttacks:
    """The attacks on one game under one defense.

    Attributes:
        attacks: each once, in the order of the settings.
        panel: names of those whose judgements are also added up; empty for none.
    """

    attacks: tuple[AnyAttack, ...]
    panel: tuple[str, ...] = ()


def attacks_for(spec: InferenceSpec, ask: str, defense: Defense | None = None) -> GameAttacks:
    """Return the attacks of a game: the named ones that play it; without names, the panel's.

    Args:
        spec: the settings.
        ask: the game.
        defense: of the gradients; None for none.

    Raises:
        InputError: adversaries are named, and none of them plays the game.
    """
    noisy = defense is not None and defense.adds_noise
    several_times = spec.batches == REUSE and spec.rounds > 1
    panel = panel_of(ask, all_rounds=noisy and several_times)
    texts = [name for text in named(spec) for name in (panel if text == PANEL else (text,))]
    attacks = [parse_adversary(text) for text in dict.fromkeys(texts)]
    able = tuple(attack for attack in attacks if ask in games_of(attack))
    require(
        bool(able),
        f"no adversary named ({', '.join(spec.adversary)}) plays {ask!r}; name one of "
        f"{', '.join((PANEL, *adversaries_for(ask)))} too, or none",
    )
    return GameAttacks(able, panel if PANEL in named(spec) and len(panel) > 1 else ())


def without_panel(players: GameAttacks) -> GameAttacks:
    """Return the paper's adversary, the first of the panel, and those that were named beside it."""
    others = players.panel[1:]
    return GameAttacks(tuple(one for one in players.attacks if one.name not in others))


def named(spec: InferenceSpec) -> tuple[str, ...]:
    """Return the names of the adversaries as users type them; by default the panel."""
    return spec.adversary or (PANEL,)


def check_adversaries(spec: InferenceSpec) -> None:
    """Refuse adversaries that are unknown, repeated, or play none of the games.

    Raises:
        InputError: as said, or a game is left without an adversary.
    """
    names = spec.adversary
    require(len(set(names)) == len(names), f"--adversary repeats a name: {', '.join(names)}")
    able = {attack.name for ask in spec.ask for attack in attacks_for(spec, ask).attacks}
    for text in names:
        name = PANEL if text == PANEL else str(parse_adversary(text).name)
        require(
            name in able or name == PANEL,
            f"the adversary {name!r} plays none of the games of --ask ({', '.join(spec.ask)})",
        )


def defenses_of(spec: InferenceSpec, ask: str) -> list[Defense]:
    """Return the defenses of a game, each once; the noise of some depends on its batch size.

    Raises:
        InputError: none is named, or a name or a setting of one is unknown.
    """
    require(len(spec.defense) > 0, "--defense is empty; name one, or none for no defense")
    parsed = [parse_defense(text, batch_size=spec.batch_of(ask)) for text in spec.defense]
    return list({defense.name: defense for defense in parsed}.values())
