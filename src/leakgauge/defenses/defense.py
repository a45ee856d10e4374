"""Defenses: transforms of a client's model, of each record's gradient and of the mean."""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from leakgauge.core.checks import InputError
from leakgauge.core.types import Grads, Task
from leakgauge.defenses.transform import Chain, Identity, Objective, Transform, require_transform
from leakgauge.defenses.trying import try_transform
from leakgauge.gradients.gradients import params_of
from leakgauge.privacy.certificates import Release


class TaskTransform(Protocol):
    """Returns a changed copy of a task for records ``[n, *shape]``."""

    def __call__(self, task: Task, *, shape: Sequence[int], generator: torch.Generator) -> Task:
        """Return a task with another model or loss; ``generator`` draws initial weights."""
        ...


class Learn(Protocol):
    """Learns a transform from flattened public gradients ``[n, D]`` and their secrets ``[n]``."""

    def __call__(
        self, features: Tensor, secret: Tensor, *, classes: int, generator: torch.Generator
    ) -> Transform:
        """Return the transform for one round, from gradients at its parameters."""
        ...


@dataclass(frozen=True)
class Defense:
    """The changes that a client makes before it sends: to the model, to gradients, to the mean.

    Attributes:
        name: as ``parse_defense`` reads it.
        per_example: transforms the gradient of each record, before the mean over the batch; the
            bounded-memory path is ``leakgauge.gradients.clipping``.
        update: transforms the mean.
        task: changes the model and its loss once, before training.
        learn: learns a new ``update`` in each round.
        user_variant: the defense that replaces this one in user inference; None for itself.

    >>> from leakgauge.defenses import Prune
    >>> defense = Prune(rate=0.5).build(batch_size=16)
    >>> defense.name, defense.update({"w": torch.tensor([[3.0, -1.0]])}, [])
    ('prune:rate=0.5', {'w': tensor([[3., 0.]])})
    """

    name: str
    per_example: Transform | None = None
    update: Transform = field(default_factory=Identity)
    task: TaskTransform | None = None
    learn: Learn | None = None
    user_variant: "Defense | None" = None

    def __post_init__(self) -> None:
        require_transform(self.update, f"as the update of defense {self.name!r}")
        if self.per_example is not None:
            require_transform(self.per_example, f"per record of defense {self.name!r}")

    @property
    def noise_std(self) -> float:
        """Standard deviation of the Gaussian noise on each coordinate of the update.

        >>> from leakgauge.defenses import DPSGD
        >>> DPSGD(clip=2.0, noise=0.1).build(batch_size=16).noise_std, none().noise_std
        (0.025, 0.0)
        """
        return math.sqrt(self.update.noise_variance)

    @property
    def adds_noise(self) -> bool:
        """Whether any coordinate of the update gets Gaussian noise; ``noise_std`` is of each.

        >>> from leakgauge.defenses import Noise
        >>> defense = Noise(0.1, layers="first").build(batch_size=16)
        >>> defense.adds_noise, defense.noise_std
        (True, 0.0)
        """
        return self.update.adds_noise

    def without_noise(self) -> "Defense":
        """Return the defense without its Gaussian noise, as an adversary computes it.

        >>> from leakgauge.defenses import DPSGD
        >>> DPSGD(clip=2.0, noise=0.1).build(batch_size=16).without_noise().update
        Identity()
        """
        return replace(self, update=self.update.without_noise())

    @property
    def keeps_size(self) -> bool:
        """Whether the update keeps the norm of the gradient, noise aside."""
        clipped = self.per_example is not None and not self.per_example.keeps_size
        return self.update.keeps_size and not clipped

    @property
    def release(self) -> Release | None:
        """Clip norm and noise of a Gaussian release; None where the defense is not one.

        Only noise that comes before any other change of the mean counts. Changes after the noise
        keep the guarantee.

        >>> from leakgauge.defenses import DPSGD
        >>> DPSGD(clip=2.0, noise=0.1).build(batch_size=16).release
        Release(clip=2.0, noise_std=0.025)
        """
        clip = None if self.per_example is None else self.per_example.clip_norm
        leading = itertools.takewhile(
            lambda part: part.without_noise().is_identity, self.update.parts
        )
        variances = [part.noise_variance for part in leading if not part.is_identity]
        if clip is None or not variances:
            return None
        return Release(clip, math.sqrt(sum(variances)))

    def adapt(self, objective: Objective) -> Objective | None:
        """Return the objective of an attacker who knows the defense; None if no attack adapts."""
        return None if self.learn is not None else self.update.adapt(objective)

    def of_single_records(self) -> "Defense":
        """Return the defense of batches of one record, whose gradient is the mean.

        An attack that compares means then knows what happens to each record, too.
        """
        one = self.per_example
        if one is None or self._records_at_most_clipped:
            return self
        update = one if self.update.is_identity else Chain((one, self.update))
        return replace(self, per_example=None, update=update)

    @property
    def is_known(self) -> bool:
        """Whether an attack that compares means knows how it changes them.

        It does not know a transform of each record, clipping aside, or what cannot be computed.
        """
        known = self.learn is not None or self.update.is_known
        return known and self._records_at_most_clipped

    @property
    def _records_at_most_clipped(self) -> bool:
        one = self.per_example
        return one is None or one.is_identity or one.clip_norm is not None

    def for_user_inference(self) -> "Defense":
        """Return the defense that clients use in user inference; most often this one.

        >>> from leakgauge.defenses import Perturb
        >>> Perturb().build(batch_size=16).for_user_inference().name
        'perturb:gamma=0.005,alpha=0.002,steps=5,targeted=1'
        """
        return self if self.user_variant is None else self.user_variant

    def prepare(self, task: Task, *, shape: Sequence[int], generator: torch.Generator) -> Task:
        """Return the task that clients train under this defense, for records ``[n, *shape]``.

        Raises:
            InputError: the defense does not fit the model.
        """
        if self.task is not None:
            task = self.task(task, shape=shape, generator=generator)
        self.check(task)
        return task

    def check(self, task: Task) -> None:
        """Refuse a model without the layers that the defense changes, and a faulty own transform.

        Raises:
            InputError: a layer is not there, or as ``try_transform``.
        """
        params = params_of(task.model)
        for transform in (self.per_example, self.update):
            if transform is not None:
                transform.check(list(params))
                try_transform(transform, params, self.name)

    def learned(
        self, features: Tensor, secret: Tensor, *, classes: int, generator: torch.Generator
    ) -> "Defense":
        """Return the defense for one round; itself if it does not learn.

        Args:
            features: flattened gradients of public batches at the round's parameters ``[n, D]``.
            secret: their secrets ``[n]``.
            classes: m, number of values of the secret.
            generator: the only source of randomness.
        """
        if self.learn is None:
            return self
        update = self.learn(features, secret, classes=classes, generator=generator)
        return replace(self, update=update, learn=None)

    def knowing(self, secret: Tensor) -> "Defense":
        """Return the defense for N updates whose secrets ``[N]`` the defender knows.

        It is the same defense where that changes nothing. Do not call it for updates that have no
        single secret.
        """
        return replace(self, update=self.update.knowing(secret))


@dataclass(frozen=True)
class NotLearned(Transform):
    """Placeholder of a transform that is not learned yet; it refuses every gradient."""

    def __call__(self, grads: Grads, rngs: Sequence[torch.Generator]) -> Grads:
        """Refuse the gradients.

        Raises:
            InputError: always.
        """
        raise InputError(
            "this defense is learned from public gradients; "
            "call Defense.learned in each round, and use what it returns"
        )


def none() -> Defense:
    """Return the empty defense: clients send their gradients unchanged."""
    return Defense("none")


@dataclass(frozen=True)
class DefenseSettings(ABC):
    """Settings of one defense. Subclasses are frozen dataclasses, checked when made.

    Keyword-only fields appear in ``name`` only where they differ from their default.

    Attributes:
        word: the name of the defense, without settings.
    """

    word: ClassVar[str]

    def __post_init__(self) -> None:
        self.build(batch_size=1)

    @property
    def name(self) -> str:
        """The text from which ``parse_defense`` reads these settings.

        >>> from leakgauge.defenses import Prune, Sign
        >>> Prune(rate=0.9).name, Prune(whole=True).name, Sign(layers="first").name
        ('prune:rate=0.9', 'prune:rate=0.99,whole=1', 'sign:layers=first')
        """
        shown = [
            f"{one.name}={_text(getattr(self, one.name))}"
            for one in fields(self)
            if not one.kw_only or getattr(self, one.name) != one.default
        ]
        return f"{self.word}:{','.join(shown)}" if shown else self.word

    @abstractmethod
    def build(self, *, batch_size: int) -> Defense:
        """Return the defense of a client that trains on batches of ``batch_size`` records."""


def _text(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.12g}"
