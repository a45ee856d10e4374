"""What is asked of one run, by names and plain values."""

from dataclasses import dataclass, replace

from leakgauge.core.checks import InputError, require, require_choice, require_count
from leakgauge.defenses import Defense, parse_defense
from leakgauge.inference import GAMES, AnyAttack, games_of, parse_adversary, players
from leakgauge.inference.catalog import USER
from leakgauge.inference.run import UNIFORM, Settings


@dataclass(frozen=True)
class Plan:
    """What is asked of one run.

    Attributes:
        asks: names of games.
        adversaries: as ``parse_adversary`` reads them; each game is played by those that can, and
            where none is named, by the paper's.
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
        _refuse_twice("--ask", self.asks)
        require(len(self.asks) > 0, f"--ask is empty; expected one or more of {', '.join(GAMES)}")
        for ask in self.asks:
            require_choice(ask, "--ask", GAMES)
        _refuse_twice("--adversary", self.adversaries)
        require(
            self.settings.prior == UNIFORM or not self.about_persons,
            f"prior is {self.settings.prior!r}, but the candidates of user inference are equally "
            "likely; take --prior uniform",
        )
        playing = {attack.name for ask in self.asks for attack in self.attacks(ask)}
        for name in map(_name, self.adversaries):
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
        if not self.adversaries:
            return [parse_adversary(players(ask)[0])]
        named = [parse_adversary(text) for text in self.adversaries]
        playing = [attack for attack in named if ask in games_of(attack)]
        if not playing:
            raise InputError(
                f"no adversary named ({', '.join(self.adversaries)}) plays {ask!r}; name one of "
                f"{', '.join(players(ask))} too, or none"
            )
        return playing

    @property
    def adversary_names(self) -> list[str]:
        """Of all games, each once."""
        named = [str(attack.name) for ask in self.asks for attack in self.attacks(ask)]
        return list(dict.fromkeys([*map(_name, self.adversaries), *named]))

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
        return USER in self.asks

    @property
    def about_more_than_persons(self) -> bool:
        """Whether a game asks for something else."""
        return set(self.asks) != {USER}

    def about(self, secret: str) -> "Plan":
        """The same plan for another secret."""
        return replace(self, settings=replace(self.settings, secret=secret))


def _name(text: str) -> str:
    return str(parse_adversary(text).name)


def _refuse_twice(option: str, names: tuple[str, ...]) -> None:
    require(isinstance(names, tuple), f"{option} is {names!r}; expected a tuple of names")
    require(len(set(names)) == len(names), f"{option} names one twice: {', '.join(names)}")
