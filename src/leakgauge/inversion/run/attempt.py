"""The attempts that one spec stands for: a method, a defense, and knowledge of the defense.

With a ladder they are one attack on clients that are nearer and nearer to real ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from leakgauge.core.knowledge import ADAPTIVE, STATIC
from leakgauge.defenses import Defense, parse_defense
from leakgauge.inversion import words
from leakgauge.inversion.methods import STRONGEST, Method, method_of
from leakgauge.inversion.search.presets import Search
from leakgauge.inversion.search.settings import SearchSettings
from leakgauge.inversion.servers.catalog import HONEST
from leakgauge.inversion.spec import InversionSpec
from leakgauge.runs.spec import NONE
from leakgauge.training.catalog import SGD
from leakgauge.training.client import Client

MOMENTUM = "sgd:momentum=0.9"
"""The optimizer of Flower's stock client."""

ADAM = "adam:lr=0.001"

RUNGS = {
    "gradient": "one gradient, evaluation mode",
    "training": "one gradient, training mode",
    "steps": "local steps",
    "momentum": "local steps with momentum",
    "adam": "local steps of Adam",
    "epochs": "momentum, local epochs",
    "rate": "momentum, local epochs, rate unknown",
    "sum": "momentum, local epochs, rate unknown, sum of clients",
}
"""What clients do on each rung, from the bottom. The local steps come before the optimizers, since
one step of momentum is a plain one. The rungs above Adam have momentum."""

AT_LEAST = {"batch_size": 2, "local_steps": 2, "local_epochs": 2, "clients": 2, "local_lr": 0.01}
"""What the ladder takes where a setting has its ordinary default."""


@dataclass(frozen=True)
class EpochRules:
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

        >>> EpochRules("greedy", "per-sample", 0.1).weights(3)
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
        rung: rung of the ladder, one of ``RUNGS``; empty without a ladder.

    Raises:
        InputError: a name is unknown, or the client cannot have this defense.
    """

    spec: InversionSpec
    method: str
    defense: str = NONE
    knowledge: str = STATIC
    rung: str = ""

    def __post_init__(self) -> None:
        _ = self.client, self.attack

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
    def attack(self) -> Method:
        """The method with its settings."""
        spec = self.spec
        return method_of(
            self.method,
            iterations=spec.iterations,
            restarts=spec.restarts,
            are_images=spec.net != words.MLP,
            trained=spec.weights is not None,
            large=spec.net == words.LARGE_NET or spec.side > words.SMALL_SIDE,
        )

    @property
    def search(self) -> Search:
        """The method, which has to be a search: only these rebuild from several epochs."""
        assert isinstance(self.attack, Search)
        return self.attack

    @property
    def settings(self) -> SearchSettings:
        """The settings of the search."""
        return self.search.settings

    @property
    def rough(self) -> Search:
        """The search for rough images, which are matched between epochs."""
        most = self.spec.rough_iterations or words.ROUGH_ITERATIONS
        shorter = replace(self.settings, iterations=min(most, self.settings.iterations))
        return replace(self.search, settings=shorter)

    @property
    def simulates(self) -> bool:
        """Whether the attack simulates the local steps."""
        return self.spec.simulate and self.attack.traits.searches

    @property
    def rules(self) -> EpochRules:
        """The rules over several epochs: the paper's for ``agic``, ours for others, unless named.

        The weight of later epochs goes with the rule of joint reconstruction.
        """
        spec, papers = self.spec, self.search.follows_paper
        joint = spec.joint or (words.PER_SAMPLE if papers else words.TOGETHER)
        later = words.LATER_EPOCHS if joint == words.PER_SAMPLE else 1.0
        matching = spec.matching or (words.GREEDY if papers else words.GRADIENTS)
        return EpochRules(matching, joint, later if spec.gamma is None else spec.gamma)

    @property
    def is_adaptive(self) -> bool:
        """Whether the attacker knows the defense."""
        return self.knowledge == ADAPTIVE

    @cached_property
    def defense_of_means(self) -> Defense:
        """The defense as an attack sees it that compares means over batches."""
        client = self.client
        alone = client.batch_size == client.steps == client.summed == 1
        return client.defense.of_single_records() if alone else client.defense

    @property
    def title(self) -> str:
        """The attempt in a few words, as ``Test.who`` names it."""
        if self.defense == NONE:
            return self.name
        return f"{self.name}, {self.defense}, {self.knowledge}"

    @property
    def name(self) -> str:
        """The method, with its rung of the ladder or an active server."""
        if self.spec.server != HONEST:
            return f"{self.method}{words.BY_SERVER}{self.spec.server}"
        return f"{self.method}, {RUNGS[self.rung]}" if self.rung else self.method


def attempts_of(spec: InversionSpec) -> list[Attempt]:
    """Return the attempts of a spec, sorted by method, then by defense, then static first.

    Those of a ladder are its rungs. Before the data decide on a default method, they are those of
    the strongest search.

    Raises:
        InputError: as for ``Attempt``.
    """
    if spec.ladder:
        (method,) = spec.method or (STRONGEST,)
        return [
            Attempt(one, method, spec.defense[0], STATIC, rung)
            for rung, one in rungs_of(with_ladder(spec)).items()
        ]
    return [
        Attempt(spec, method, defense, knowledge)
        for method in dict.fromkeys(spec.method or (STRONGEST,))
        for defense in dict.fromkeys(spec.defense)
        for knowledge in _knowledge(Attempt(spec, method, defense))
    ]


def _knowledge(attempt: Attempt) -> Sequence[str]:
    """Return the kinds of knowledge to try against the attempt's defense."""
    if attempt.defense == NONE or not attempt.attack.traits.adapts:
        return (STATIC,)
    if attempt.spec.knowledge:
        return attempt.spec.knowledge
    can_adapt = attempt.attack.adapts_to(attempt.defense_of_means)
    return (STATIC, ADAPTIVE) if can_adapt else (STATIC,)


def with_ladder(spec: InversionSpec) -> InversionSpec:
    """Return the settings of the highest rung's clients; without a ladder the settings themselves.

    The steps of a client are simulated, and labels are granted: an update does not show the step
    that used a label.
    """
    if not spec.ladder:
        return spec
    defaults = {name: getattr(type(spec), name) for name in AT_LEAST}
    given: dict[str, Any] = {
        name: least for name, least in AT_LEAST.items() if getattr(spec, name) == defaults[name]
    }
    optimizer = MOMENTUM if spec.local_optimizer == SGD else spec.local_optimizer
    return replace(spec, **given, local_optimizer=optimizer, labels=words.KNOWN)


def rungs_of(spec: InversionSpec) -> dict[str, InversionSpec]:
    """Return the settings of each rung by its name, from the bottom.

    Args:
        spec: settings that ``with_ladder`` returned.
    """
    plain = {name: getattr(type(spec), name) for name in words.OF_CLIENTS}
    one = replace(spec, **plain, ladder=False, local_steps=1, simulate=False)
    training = replace(one, train_mode=True, statistics=spec.statistics)
    steps = replace(training, local_steps=spec.local_steps, simulate=True)
    momentum = replace(steps, local_optimizer=spec.local_optimizer)
    epochs = replace(momentum, local_epochs=spec.local_epochs, reshuffle=True)
    rate = replace(epochs, unknown=(words.RATE,), assumed_lr=spec.assumed_lr)
    return {
        "gradient": one,
        "training": training,
        "steps": steps,
        "momentum": momentum,
        "adam": replace(steps, local_optimizer=ADAM),
        "epochs": epochs,
        "rate": rate,
        "sum": replace(rate, clients=spec.clients),
    }
