"""The adversaries and defenses that settings name."""

from typing import TYPE_CHECKING

from leakgauge.core.checks import InputError, require, require_choice
from leakgauge.defenses import Defense, parse_defense
from leakgauge.inference import ATTACKS, AnyAttack, players

if TYPE_CHECKING:
    from leakgauge.inference.spec import InferenceSpec


def is_known(text: str) -> bool:
    """Return whether an adversary of inference has this name, with settings or without."""
    return text.partition(":")[0] in ATTACKS


def attacks_of(spec: "InferenceSpec", ask: str) -> list[AnyAttack]:
    """Return the attacks of a game: the named ones that play it, or else the paper's.

    Raises:
        InputError: adversaries are named, and none of them plays the game.
    """
    known = {attack.name: attack for attack in players(ask)}
    names = [name for name in spec.adversary if name in known]
    if spec.adversary and not names:
        raise InputError(
            f"no adversary named ({', '.join(spec.adversary)}) plays {ask!r}; name one of "
            f"{', '.join(map(str, known))} too, or none"
        )
    return [known[name]() for name in names or list(known)[:1]]


def adversary_names(spec: "InferenceSpec") -> tuple[str, ...]:
    """Return the names of the adversaries of all games, each once."""
    named = [str(attack.name) for ask in spec.ask for attack in attacks_of(spec, ask)]
    return tuple(dict.fromkeys([*spec.adversary, *named]))


def check_adversaries(spec: "InferenceSpec") -> None:
    """Refuse adversaries that are unknown or play none of the games.

    Raises:
        InputError: as said, or a game is left without an adversary.
    """
    names = spec.adversary
    for name in names:
        require_choice(name, "--adversary", ATTACKS)
    require(len(set(names)) == len(names), f"--adversary repeats a name: {', '.join(names)}")
    playing = {attack.name for ask in spec.ask for attack in attacks_of(spec, ask)}
    for name in names:
        require(
            name in playing,
            f"the adversary {name!r} plays none of the games asked for ({', '.join(spec.ask)})",
        )


def defenses_of(spec: "InferenceSpec") -> list[Defense]:
    """Return the defenses that are played, each once.

    Raises:
        InputError: none is named, or a name or a setting of one is unknown.
    """
    require(len(spec.defense) > 0, "--defense is empty; name one, or none for no defense")
    parsed = [parse_defense(text, batch_size=spec.batch_size) for text in spec.defense]
    return list({defense.name: defense for defense in parsed}.values())
