"""What is asked of one run, by names and plain values."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from leakgauge.core.checks import InputError, require, require_choice, require_count
from leakgauge.defenses import Defense, parse_defense
from leakgauge.inference import ATTACKS, GAMES, AnyAttack, UserInference, players
from leakgauge.inference.run import UNIFORM, Settings


@dataclass(frozen=True)
class Plan:
    """What is asked of one run.

    Attributes:
        asks: names of games.
        adversaries: names of attacks; each game is played by those that can, and where none is
            named, by the paper's.
        settings: how they are played.
        shadow: shadow records, at most.
        hidden: widths of the hidden layers of the network for tables.
        device: where torch computes.
        defenses: ``"prune:rate=0.99"``, ...
        beside_none: whether training without a defense stands beside them.
    """

    asks: tuple[str, ...]
    adversaries: tuple[str, ...]
    settings: Settings
    shadow: int = 1000
    hidden: tuple[int, ...] = (100,)
    device: str = "cpu"
    defenses: tuple[str, ...] = ()
    beside_none: bool = True

    def __post_init__(self) -> None:
        require_count(self.shadow, "number of shadow records (--shadow)")
        for width in self.hidden:
            require_count(width, "width of a hidden layer (--hidden)")
        _refuse_names("--ask", self.asks, GAMES, fewest=1)
        _refuse_names("--adversary", self.adversaries, ATTACKS, fewest=0)
        require(
            self.settings.prior == UNIFORM or not self.about_persons,
            f"prior is {self.settings.prior!r}, but the candidates of user inference are equally "
            "likely; take --prior uniform",
        )
        playing = {attack.name for ask in self.asks for attack in self.attacks(ask)}
        for name in self.adversaries:
            require(
                name in playing,
                f"the adversary {name!r} plays none of the games asked for "
                f"({', '.join(self.asks)})",
            )

    def attacks(self, ask: str) -> list[AnyAttack]:
        """Those that play a game.

        Raises:
            InputError: adversaries are named, and none of them plays it.
        """
        known = {attack.name: attack for attack in players(ask)}
        names = [name for name in self.adversaries if name in known]
        if self.adversaries and not names:
            raise InputError(
                f"no adversary named ({', '.join(self.adversaries)}) plays {ask!r}; name one of "
                f"{', '.join(map(str, known))} too, or none"
            )
        return [known[name]() for name in names or list(known)[:1]]

    @property
    def adversary_names(self) -> list[str]:
        """Of all games, each once."""
        named = [str(attack.name) for ask in self.asks for attack in self.attacks(ask)]
        return list(dict.fromkeys([*self.adversaries, *named]))

    @property
    def parsed_defenses(self) -> list[Defense]:
        """Each once; no defense first, where it stands beside them or none is named."""
        alone = bool(self.defenses) and not self.beside_none
        texts = self.defenses if alone else ("none", *self.defenses)
        found = [parse_defense(text, batch_size=self.settings.batch_size) for text in texts]
        return list({defense.name: defense for defense in found}.values())

    @property
    def about_persons(self) -> bool:
        """Whether a game asks for the person."""
        return UserInference.name in self.asks

    @property
    def about_more_than_persons(self) -> bool:
        """Whether a game asks for something else."""
        return set(self.asks) != {UserInference.name}

    def about(self, secret: str) -> "Plan":
        """The same plan for another secret."""
        return replace(self, settings=replace(self.settings, secret=secret))


def _refuse_names(
    option: str, names: tuple[str, ...], known: Iterable[str], *, fewest: int
) -> None:
    words = list(known)
    require(
        isinstance(names, tuple) and len(names) >= fewest,
        f"{option} is {names!r}; expected a tuple of one or more of {', '.join(words)}",
    )
    for name in names:
        require_choice(name, option, words)
    require(len(set(names)) == len(names), f"{option} names one twice: {', '.join(names)}")
