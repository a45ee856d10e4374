"""Adversarial perturbation of gradients, against a network that reads the secret from them."""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from leakgauge.core.checks import require, require_count, require_positive
from leakgauge.core.types import Grads
from leakgauge.defenses.defense import Defense, NotLearned
from leakgauge.defenses.perturb_network import train_network
from leakgauge.defenses.settings import DefenseSettings
from leakgauge.defenses.transform import Transform, over_rows


@dataclass(frozen=True)
class Perturb(DefenseSettings):
    """The update is perturbed so that a network misreads its secret; see ``PerturbTransform``.

    With ``pool=3`` the network reads what the paper's forest reads of a table's gradients, and not
    every coordinate: see ``train_network``.

    Args:
        gamma: the most that a coordinate may change.
        alpha: what a coordinate changes in one step.
        steps: how many.
        pool: neighbouring coordinates of which the network reads the maximum.
        targeted: move towards another secret instead of away from one's own.

    References:
        Li et al., CCS 2024, section 6.1 (0.005, 0.002, 5 steps).
    """

    word: ClassVar[str] = "perturb"
    gamma: float = 0.005
    alpha: float = 0.002
    steps: int = 5
    _: KW_ONLY
    pool: int = 1
    targeted: bool = False

    def build(self, *, batch_size: int) -> Defense:
        """The defense, to be learned in each round; the batch size does not matter.

        In user inference, a network trained on public users knows none of the private ones. There
        is no secret of one's own to move away from, so each update moves towards another user
        (Li et al., section 6.1).
        """
        require_count(self.pool, "pooling kernel of the perturbation's network")
        learn = LearnPerturb(PGD(self.gamma, self.alpha, self.steps, self.targeted), self.pool)
        of_users = None
        if not self.targeted:
            of_users = replace(self, targeted=True).build(batch_size=batch_size)
        return Defense(self.name, update=NotLearned(), learn=learn, user_variant=of_users)


@dataclass(frozen=True)
class PGD:
    """Projected gradient descent in an l-infinity ball, from its centre.

    Args:
        gamma: radius of the ball: the most that a coordinate may change.
        alpha: what a coordinate changes in one step.
        steps: how many.
        targeted: move towards the label given instead of away from it.

    References:
        Madry et al., Towards deep learning models resistant to adversarial attacks, ICLR 2018;
        Li et al., CCS 2024, section 6.1 (0.005, 0.002, 5 steps).

    >>> network = nn.Linear(2, 2, bias=False)
    >>> network.weight = nn.Parameter(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    >>> PGD()(network, torch.tensor([[2.0, 1.0]]), torch.tensor([0]))
    tensor([[1.9950, 1.0050]])
    """

    gamma: float = 0.005
    alpha: float = 0.002
    steps: int = 5
    targeted: bool = False

    def __post_init__(self) -> None:
        for name, value in (("gamma", self.gamma), ("alpha", self.alpha)):
            require(math.isfinite(value), f"perturbation {name} is {value:g}; expected a number")
            require_positive(value, f"perturbation {name}")
        require_count(self.steps, "number of perturbation steps")

    def __call__(self, network: nn.Module, features: Tensor, label: Tensor) -> Tensor:
        """Perturb ``features [n, D]``, given the label ``[n]`` to avoid (or to be taken for).

        A step takes the sign of the gradient of the network's cross-entropy at the label. With
        logits z, that is softplus(m), m = log sum_{j != label} exp(z_j) - z_label, and m rises
        wherever the cross-entropy does: its gradient has the same sign, also where the network is
        so sure that the cross-entropy's own rounds to 0.

        Returns:
            New features ``[n, D]``, each within ``gamma`` of its own.
        """
        step = -self.alpha if self.targeted else self.alpha
        change = torch.zeros_like(features)
        with torch.enable_grad():
            for _ in range(self.steps):
                moved = (features + change).requires_grad_()
                rise = torch.autograd.grad(_odds_against(network(moved), label).sum(), moved)[0]
                change.add_(rise.sign(), alpha=step).clamp_(-self.gamma, self.gamma)
        return features + change


@dataclass(frozen=True, eq=False)
class PerturbTransform(Transform):
    """Perturbs each gradient so that a network misreads its secret.

    The label to move away from is the gradient's secret: the defender knows its own, and says it
    by ``knowing``. A network that is fooled is not all: the change itself then tells the secret
    to whoever has seen such changes, as an adaptive adversary has. Without ``knowing``, the label
    is what the network predicts from the clean gradient. That tells less, but where the network
    was wrong it is led back; and it is all there is for a batch of mixed secrets, as in training.

    In the targeted form each gradient moves towards a label that its own generator draws among
    the others: for secrets that the network does not know, as the persons in user inference. For
    targets of your own, call ``PGD`` itself.

    Args:
        network: flattened gradients ``[n, D]`` -> logits ``[n, m]``, row by row; as from
            ``train_network``, fitted in each round.
        pgd: size and number of steps.
        secret: of each gradient ``[N]``, where ``knowing`` said so.

    >>> network = nn.Linear(2, 2, bias=False)
    >>> network.weight = nn.Parameter(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    >>> PerturbTransform(network)({"w": torch.tensor([[2.0, 1.0]])}, [])
    {'w': tensor([[1.9950, 1.0050]])}
    """

    network: nn.Module
    pgd: PGD = PGD()
    secret: Tensor | None = None

    def knowing(self, secret: Tensor) -> "PerturbTransform":
        """The same for N gradients with the secrets ``[N]``, int64 codes of the network."""
        return replace(self, secret=secret)

    def __call__(self, grads: Grads, rngs: Sequence[torch.Generator]) -> Grads:
        """Perturb each gradient; in the network's own precision, float64 from ``train_network``."""
        precision = next(self.network.parameters()).dtype
        count = len(next(iter(grads.values()), ()))
        if self.pgd.targeted:
            _require_each(count, len(rngs), "generators")
        if self.secret is not None:
            _require_each(count, len(self.secret), "secrets")

        def flat(found: Tensor, rows: slice) -> Tensor:
            features = found.to(precision)
            return self.pgd(self.network, features, self._label(features, rows, rngs))

        return over_rows(grads, flat)

    def _label(self, features: Tensor, rows: slice, rngs: Sequence[torch.Generator]) -> Tensor:
        with torch.no_grad():
            logits: Tensor = self.network(features)
        own, values = logits.argmax(dim=1), logits.shape[1]
        if self.secret is not None:
            own = self.secret[rows].to(logits.device)
            require(
                bool(((own >= 0) & (own < values)).all()),
                f"a secret is none of the {values} that the network was trained on; "
                "leave out knowing, or train on all of them",
            )
        if not self.pgd.targeted:
            return own
        ahead = [
            int(torch.randint(1, values, (), generator=rng, device=rng.device))
            for rng in rngs[rows]
        ]
        return (own + own.new_tensor(ahead)) % values


@dataclass(frozen=True)
class LearnPerturb:
    """Trains the network of ``PerturbTransform``, which pools ``pool`` coordinates."""

    pgd: PGD
    pool: int = 1

    def __call__(
        self, features: Tensor, secret: Tensor, *, classes: int, generator: torch.Generator
    ) -> PerturbTransform:
        """Train it on public gradients."""
        network = train_network(
            features, secret, classes=classes, generator=generator, pool=self.pool
        )
        return PerturbTransform(network, self.pgd)


def _require_each(count: int, found: int, what: str) -> None:
    require(found == count, f"{count} gradients came with {found} {what}; expected one for each")


def _odds_against(logits: Tensor, label: Tensor) -> Tensor:
    """``log sum_{j != label} exp(z_j) - z_label`` ``[n]``: log-odds that it is not the label."""
    index = label[:, None]
    others = logits.scatter(1, index, -math.inf)
    return others.logsumexp(dim=1) - logits.gather(1, index).squeeze(1)
