"""Defenses: where on a client's path something is done to its gradient, and what."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor

from leakgauge.core.checks import InputError
from leakgauge.core.types import Grads, Task
from leakgauge.defenses.transform import Identity, Objective, Transform, require_transform
from leakgauge.privacy.certificates import Release


class TaskTransform(Protocol):
    """A task -> another one, for records ``[n, *shape]``; the first stays as it is."""

    def __call__(self, task: Task, *, shape: Sequence[int], generator: torch.Generator) -> Task:
        """Change the model or its loss; initial weights come from ``generator``."""
        ...


class Learn(Protocol):
    """Flattened public gradients ``[n, D]`` and their secrets ``[n]`` -> a transform."""

    def __call__(
        self, features: Tensor, secret: Tensor, *, classes: int, generator: torch.Generator
    ) -> Transform:
        """Learn, at the parameters of one round."""
        ...


@dataclass(frozen=True)
class Defense:
    """What a client does before it sends: to the model, to each record's gradient, to the mean.

    Attributes:
        name: as ``parse_defense`` reads it.
        per_example: done to the gradient of each record, before the mean over the batch; the
            bounded-memory path is ``leakgauge.gradients.clipping``.
        update: done to the mean.
        task: done once to the model and its loss, before training.
        learn: makes ``update`` anew in each round.
        user_variant: the defense that stands in for this one in user inference; None: itself.

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
        """Standard deviation of the Gaussian noise on each coordinate of the update; 0 without.

        >>> from leakgauge.defenses import DPSGD
        >>> DPSGD(clip=2.0, noise=0.1).build(batch_size=16).noise_std, none().noise_std
        (0.025, 0.0)
        """
        return math.sqrt(self.update.noise_variance)

    def without_noise(self) -> "Defense":
        """The defense without its Gaussian noise, as an adversary computes it.

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
        """Clip norm and noise of a Gaussian release; None where the defense makes none.

        Only noise that comes before any other change of the mean counts. What is done to the
        update after the noise takes nothing back.

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
        """The objective of an attacker who knows the defense; None where no attack adapts."""
        return None if self.learn is not None else self.update.adapt(objective)

    def for_user_inference(self) -> "Defense":
        """The defense as clients use it in user inference; most are themselves.

        >>> from leakgauge.defenses import Perturb
        >>> Perturb().build(batch_size=16).for_user_inference().name
        'perturb:gamma=0.005,alpha=0.002,steps=5,targeted=1'
        """
        return self if self.user_variant is None else self.user_variant

    def prepare(self, task: Task, *, shape: Sequence[int], generator: torch.Generator) -> Task:
        """The task that is trained under this defense, for records ``[n, *shape]``."""
        return task if self.task is None else self.task(task, shape=shape, generator=generator)

    def learned(
        self, features: Tensor, secret: Tensor, *, classes: int, generator: torch.Generator
    ) -> "Defense":
        """The defense for one round; itself where there is nothing to learn.

        Args:
            features: flattened gradients of public batches at the round's parameters ``[n, D]``.
            secret: their secrets ``[n]``; ``classes`` is m.
            generator: all the randomness there is.
        """
        if self.learn is None:
            return self
        update = self.learn(features, secret, classes=classes, generator=generator)
        return replace(self, update=update, learn=None)

    def knowing(self, secret: Tensor) -> "Defense":
        """The defense for N updates with the secrets ``[N]``, which the defender knows.

        Itself where that changes nothing. Leave it out for updates without one secret.
        """
        return replace(self, update=self.update.knowing(secret))


@dataclass(frozen=True)
class NotLearned(Transform):
    """Stands where a transform will be, and refuses to let a gradient pass as if defended."""

    def __call__(self, grads: Grads, rngs: Sequence[torch.Generator]) -> Grads:
        """Refuse."""
        raise InputError(
            "this defense is learned from public gradients; "
            "call Defense.learned in each round, and use what it returns"
        )


def none() -> Defense:
    """No defense: gradients are sent as they are."""
    return Defense("none")
