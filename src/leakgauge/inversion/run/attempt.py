"""The attempts that one spec stands for: a method, a defense, and knowledge of the defense."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from leakgauge.core.knowledge import ADAPTIVE, STATIC
from leakgauge.defenses import parse_defense
from leakgauge.inversion import words
from leakgauge.inversion.run.ladder import RUNGS, rungs_of, with_ladder
from leakgauge.inversion.search.adaptive import adapts
from leakgauge.inversion.search.parse import parse_attack
from leakgauge.inversion.search.presets import agic, presets_for
from leakgauge.inversion.search.settings import Settings
from leakgauge.runs.spec import NONE
from leakgauge.training.client import Client

if TYPE_CHECKING:
    from leakgauge.inversion.spec import InversionSpec


@dataclass(frozen=True)
class Rules:
    """How an attempt puts several epochs together.

    Attributes:
        matching: how records are matched between epochs, one of ``words.MATCHINGS``.
        joint: how they are rebuilt then, one of ``words.JOINTS``.
        later: weight of the updates of each later epoch; those of the first weigh 1.
    """

    matching: str
    joint: str
    later: float

    @property
    def words(self) -> dict[str, str]:
        """The rules as texts by name, for the details of a measurement."""
        return {"matching": self.matching, "joint": self.joint, "later": f"{self.later:g}"}

    def weights(self, epochs: int) -> list[float]:
        """Return the weight of each epoch.

        >>> Rules("greedy", "per-sample", 0.1).weights(3)
        [1.0, 0.1, 0.1]
        """
        return [1.0, *[self.later] * (epochs - 1)]


@dataclass(frozen=True)
class Attempt:
    """One attempt to rebuild records.

    Attributes:
        spec: the settings that all attempts share.
        method: an attack, as a user names it.
        defense: what clients do before they send, as a user names it.
        knowledge: whether the attacker knows the defense: static or adaptive.
        rung: of the ladder, one of ``ladder.RUNGS``; empty without a ladder.

    Raises:
        InputError: a name is unknown, or the client cannot have this defense.
    """

    spec: InversionSpec
    method: str
    defense: str = NONE
    knowledge: str = STATIC
    rung: str = ""

    def __post_init__(self) -> None:
        _ = self.client, self.settings

    @cached_property
    def client(self) -> Client:
        """The client that sends."""
        spec = self.spec
        defense = parse_defense(self.defense, batch_size=spec.batch_size)
        return Client(
            spec.batch_size,
            spec.local_steps,
            spec.local_lr,
            defense,
            optimizer=spec.local_optimizer,
            epochs=spec.local_epochs,
            reshuffle=spec.reshuffle,
            training=spec.train_mode,
            rates=spec.local_rates,
            summed=spec.clients,
        )

    @cached_property
    def settings(self) -> Settings:
        """The settings of the search; exact recovery does not use them."""
        spec = self.spec
        return settings_of(
            self.method,
            spec.iterations,
            spec.restarts,
            are_images=spec.net != words.MLP,
            trained=spec.weights is not None,
            large=spec.net == words.LARGE_NET or spec.side > words.SMALL_SIDE,
        )

    @property
    def rough(self) -> Settings:
        """The settings of the search for rough images, which are matched between epochs."""
        most = self.spec.rough_iterations or words.ROUGH_ITERATIONS
        return replace(self.settings, iterations=min(most, self.settings.iterations))

    @property
    def rules(self) -> Rules:
        """The rules over several epochs: the paper's for ``agic``, ours for others, unless named.

        The weight of later epochs goes with the rule of joint reconstruction.
        """
        spec, papers = self.spec, self.method.partition(":")[0] == words.AGIC
        joint = spec.joint or (words.PER_SAMPLE if papers else words.TOGETHER)
        later = words.LATER_EPOCHS if joint == words.PER_SAMPLE else 1.0
        matching = spec.matching or (words.GREEDY if papers else words.GRADIENTS)
        return Rules(matching, joint, later if spec.gamma is None else spec.gamma)

    @property
    def is_adaptive(self) -> bool:
        """Whether the attacker knows the defense."""
        return self.knowledge == ADAPTIVE

    @property
    def is_exact(self) -> bool:
        """Whether the method divides gradients, without a search."""
        return self.method == words.EXACT

    @property
    def title(self) -> str:
        """The attempt in a few words."""
        return title_of(self.name, self.defense, self.knowledge)

    @property
    def name(self) -> str:
        """The method, with its rung of the ladder."""
        return f"{self.method}, {RUNGS[self.rung]}" if self.rung else self.method


def attempts_of(spec: InversionSpec) -> list[Attempt]:
    """Return the attempts of a spec: by method, then by defense, the static attacker first.

    Those of a ladder are its rungs. Before the data decide on a default method, they are those of
    the strongest search.

    Raises:
        InputError: as for ``Attempt``.
    """
    if spec.ladder:
        (method,) = spec.method or (words.STRONGEST,)
        return [
            Attempt(one, method, spec.defense[0], STATIC, rung)
            for rung, one in rungs_of(with_ladder(spec)).items()
        ]
    return [
        Attempt(spec, method, defense, knowledge)
        for method in dict.fromkeys(spec.method or (words.STRONGEST,))
        for defense in dict.fromkeys(spec.defense)
        for knowledge in _knowledge(Attempt(spec, method, defense))
    ]


def _knowledge(attempt: Attempt) -> Sequence[str]:
    """The knowledge that the attacker is tried with against the attempt's defense."""
    if attempt.defense == NONE or attempt.is_exact:
        return (STATIC,)
    if attempt.spec.knowledge:
        return attempt.spec.knowledge
    can_adapt = adapts(attempt.settings, attempt.client.defense)
    return (STATIC, ADAPTIVE) if can_adapt else (STATIC,)


def title_of(method: str, defense: str, knowledge: str) -> str:
    """Return an attempt in a few words.

    >>> title_of("agic", "none", "static"), title_of("agic", "sign", "adaptive")
    ('agic', 'agic, sign, adaptive')
    """
    return method if defense == NONE else f"{method}, {defense}, {knowledge}"


def settings_of(
    method: str,
    iterations: int | None,
    restarts: int,
    *,
    are_images: bool,
    trained: bool = False,
    large: bool = False,
) -> Settings:
    """Return a method's settings for a command that ends within minutes.

    Args:
        method: a name of ``PRESETS``, with or without settings, or ``"exact"``.
        iterations: of the search; None takes 500, or the method's own where it has fewer.
        restarts: of the search.
        are_images: whether neighbouring values of a record are neighbouring pixels; without them
            the total variation has no weight.
        trained: as for ``agic``; loaded weights are taken for trained ones. Of a user's own model
            the phase is not known here, and it is taken for untrained.
        large: as for ``agic``.

    >>> settings_of("agic", None, 1, are_images=True).iterations
    500
    """
    presets = presets_for(trained=trained, large=large)
    own = parse_attack(method, words.EXACT, presets=presets) or agic()
    chosen = min(words.ITERATIONS, own.iterations) if iterations is None else iterations
    settings = replace(own, iterations=chosen, restarts=restarts)
    return settings if are_images else replace(settings, total_variation=0.0)
