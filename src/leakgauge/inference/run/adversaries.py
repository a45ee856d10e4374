"""The adversaries and defenses that settings name."""

from leakgauge.core.checks import require
from leakgauge.defenses import Defense, parse_defense
from leakgauge.inference.catalog import games_of, parse_adversary, players
from leakgauge.inference.games.candidates import AnyAttack
from leakgauge.inference.settings import InferenceSettings


def attacks_of(spec: InferenceSettings, ask: str) -> list[AnyAttack]:
    """Return the attacks of a game: the named ones that play it; without names, the paper's.

    Raises:
        InputError: adversaries are named, and none of them plays the game.
    """
    if not spec.adversary:
        return [parse_adversary(players(ask)[0])]
    named = [parse_adversary(text) for text in spec.adversary]
    playing = [attack for attack in named if ask in games_of(attack)]
    require(
        bool(playing),
        f"no adversary named ({', '.join(spec.adversary)}) plays {ask!r}; name one of "
        f"{', '.join(players(ask))} too, or none",
    )
    return playing


def adversary_names(spec: InferenceSettings) -> tuple[str, ...]:
    """Return the names of the adversaries of all games, each once."""
    named = [str(parse_adversary(text).name) for text in spec.adversary]
    playing = [str(attack.name) for ask in spec.ask for attack in attacks_of(spec, ask)]
    return tuple(dict.fromkeys([*named, *playing]))


def check_adversaries(spec: InferenceSettings) -> None:
    """Refuse adversaries that are unknown, repeated, or play none of the games.

    Raises:
        InputError: as said, or a game is left without an adversary.
    """
    names = spec.adversary
    require(len(set(names)) == len(names), f"--adversary repeats a name: {', '.join(names)}")
    playing = {attack.name for ask in spec.ask for attack in attacks_of(spec, ask)}
    for text in names:
        name = str(parse_adversary(text).name)
        require(
            name in playing,
            f"the adversary {name!r} plays none of the games of --ask ({', '.join(spec.ask)})",
        )


def defenses_of(spec: InferenceSettings) -> list[Defense]:
    """Return the defenses that are played, each once.

    Raises:
        InputError: none is named, or a name or a setting of one is unknown.
    """
    require(len(spec.defense) > 0, "--defense is empty; name one, or none for no defense")
    parsed = [parse_defense(text, batch_size=spec.batch_size) for text in spec.defense]
    return list({defense.name: defense for defense in parsed}.values())
