"""Defenses: where on a client's path something is done to its gradient, and what."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor

from leakgauge.core.checks import InputError, require_count
from leakgauge.core.types import Grads, Task
from leakgauge.defenses.perturb import PGD, Perturb, train_network
from leakgauge.defenses.plain import ClipNorm, GaussianNoise, Prune, Sign, StochasticQuantise
from leakgauge.defenses.transform import Identity, Objective, Transform, require_transform
from leakgauge.defenses.vib import Bottleneck
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

    >>> defense = prune(rate=0.5)
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

        >>> dpsgd(clip=2.0, noise=0.1, batch_size=16).noise_std, sign().noise_std
        (0.025, 0.0)
        """
        return math.sqrt(self.update.noise_variance)

    def without_noise(self) -> "Defense":
        """The defense without its Gaussian noise, as an adversary computes it.

        >>> dpsgd(clip=2.0, noise=0.1, batch_size=16).without_noise().update
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

        >>> dpsgd(clip=2.0, noise=0.1, batch_size=16).release
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

        >>> perturb().for_user_inference().name
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
class LearnPerturb:
    """Trains the network of ``Perturb``, which pools ``pool`` coordinates."""

    pgd: PGD
    pool: int = 1

    def __call__(
        self, features: Tensor, secret: Tensor, *, classes: int, generator: torch.Generator
    ) -> Perturb:
        """Train it on public gradients."""
        network = train_network(
            features, secret, classes=classes, generator=generator, pool=self.pool
        )
        return Perturb(network, self.pgd)


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
    """No defense."""
    return Defense("none")


def prune(rate: float = 0.99, whole: bool = False) -> Defense:
    """Only the largest coordinates of each parameter, or of the update, are sent; see ``Prune``."""
    named = _named("prune", rate=rate) + (",whole=1" if whole else "")
    return Defense(named, update=Prune(rate, whole))


def sign() -> Defense:
    """Only the signs of the update are sent; see ``Sign``."""
    return Defense("sign", update=Sign())


def perturb(
    gamma: float = 0.005,
    alpha: float = 0.002,
    steps: int = 5,
    pool: int = 1,
    *,
    targeted: bool = False,
) -> Defense:
    """The update is perturbed so that a network misreads its secret; see ``Perturb``.

    By ``pool=3`` the network reads what the paper's forest reads of a table's gradients, and not
    every coordinate: see ``train_network``.
    """
    settings = {
        "gamma": gamma,
        "alpha": alpha,
        "steps": steps,
        **({"pool": pool} if pool != 1 else {}),
        **({"targeted": 1} if targeted else {}),
    }
    require_count(pool, "pooling kernel of the perturbation's network")
    learn = LearnPerturb(PGD(gamma, alpha, steps, targeted), pool)
    # A network trained on public users knows none of the private ones: there is no secret of one's
    # own to move away from, so each update moves towards another user (Li et al., section 6.1).
    of_users = None if targeted else perturb(gamma, alpha, steps, pool, targeted=True)
    name = _named("perturb", **settings)
    return Defense(name, update=NotLearned(), learn=learn, user_variant=of_users)


def vib(beta: float = 0.01) -> Defense:
    """The model gets a noisy code before its last layer; see ``Bottleneck``."""
    return Defense(_named("vib", beta=beta), task=Bottleneck(beta))


def dpsgd(clip: float = 2.0, noise: float = 0.1, *, batch_size: int) -> Defense:
    """DP-SGD: each record's gradient is clipped, and noise is added to the mean.

    The paper's noise on the mean over k records has the standard deviation noise / sqrt(k) in
    each coordinate. What that is in the words of Opacus tells ``noise_multiplier``. Its scale is
    that of the batch size given here: a smaller batch, such as the last of an epoch, would need
    more noise for the same guarantee.

    Args:
        clip: largest l2 norm of a record's gradient.
        noise: sigma; 0 leaves clipping alone.
        batch_size: k, the records of a batch.

    References:
        Li et al., CCS 2024, section 6.1 (clip 2, sigma 0.1); Abadi et al., CCS 2016.

    >>> dpsgd(batch_size=16).update
    GaussianNoise(std=0.025)
    """
    require_count(batch_size, "dpsgd's batch size")
    std = GaussianNoise(noise).std / math.sqrt(batch_size)
    name = _named("dpsgd", clip=clip, noise=noise)
    return Defense(name, per_example=ClipNorm(clip), update=GaussianNoise(std))


def noise_multiplier(clip: float, noise: float, batch_size: int) -> float:
    """Opacus' and the accountants' ratio for ``dpsgd(clip, noise, batch_size=batch_size)``.

    There, the noise on the *sum* of clipped gradients has the standard deviation
    multiplier * clip, so on the mean multiplier * clip / k; here it is noise / sqrt(k). Hence
    multiplier = noise * sqrt(k) / clip. The unit of privacy is one record, added or removed.

    >>> noise_multiplier(2.0, 0.1, 16)
    0.2
    """
    return noise * math.sqrt(batch_size) / clip


def clip(l2: float) -> Defense:
    """Each record's gradient is clipped, as in DP-SGD, and no noise is added: no guarantee."""
    return Defense(_named("clip", l2=l2), per_example=ClipNorm(l2))


def gaussian(std: float) -> Defense:
    """Noise is added to the update, which is not clipped: no guarantee; see ``GaussianNoise``."""
    return Defense(_named("noise", std=std), update=GaussianNoise(std))


def quantise(levels: int) -> Defense:
    """The update is rounded at random to few levels; see ``StochasticQuantise``."""
    return Defense(_named("quantise", levels=levels), update=StochasticQuantise(levels))


def _named(name: str, **settings: float) -> str:
    """The name and settings as ``parse_defense`` reads them."""
    return f"{name}:" + ",".join(f"{key}={value:.12g}" for key, value in settings.items())
