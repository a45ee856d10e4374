"""Adversarial perturbation of gradients against a network that predicts the secret."""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from leakgauge.core.checks import require, require_count, require_positive
from leakgauge.core.types import Grads
from leakgauge.defenses.defense import Defense, DefenseSettings, NotLearned
from leakgauge.defenses.transform import Objective, Transform, over_rows
from leakgauge.models import mlp

_POOL = "pooling kernel of the perturbation's network"


@dataclass(frozen=True)
class Perturb(DefenseSettings):
    """Perturb the update so that a network mispredicts its secret; see ``PerturbTransform``.

    With ``pool=3`` the network reads the same maxima of a table's gradients as the paper's forest,
    and not every coordinate; see ``train_network``.

    Args:
        gamma: largest change of a coordinate.
        alpha: change of a coordinate in one step.
        steps: number of steps.
        pool: number of neighbouring coordinates; the network reads their maximum.
        targeted: move towards another secret instead of away from the update's own.

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
        """Return the defense, which learns in each round; the batch size has no effect.

        In user inference, a network trained on public users knows no private user. An update has
        no known secret to move away from, so it moves towards another user (Li et al., section
        6.1).
        """
        require_count(self.pool, _POOL)
        learn = LearnPerturb(PGD(self.gamma, self.alpha, self.steps, self.targeted), self.pool)
        aimed = None if self.targeted else replace(self, targeted=True).build(batch_size=batch_size)
        return Defense(self.name, update=NotLearned(), learn=learn, user_variant=aimed)


@dataclass(frozen=True)
class PGD:
    """Projected gradient descent in an l-infinity ball, from its centre.

    Args:
        gamma: radius of the ball, the largest change of a coordinate.
        alpha: change of a coordinate in one step.
        steps: number of steps.
        targeted: move towards the given label instead of away from it.

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
        """Return ``features [n, D]`` moved away from (or, targeted, towards) the label ``[n]``.

        A step takes the sign of the gradient of the network's cross-entropy at the label. With
        logits z, the cross-entropy is softplus(m), m = log sum_{j != label} exp(z_j) - z_label. It
        grows with m, so the gradient of m has the same sign, even where the network is so certain
        that the gradient of the cross-entropy rounds to 0.

        Returns:
            New features ``[n, D]``, each coordinate within ``gamma`` of the old one.
        """
        step = -self.alpha if self.targeted else self.alpha
        change = torch.zeros_like(features)
        with torch.enable_grad():
            for _ in range(self.steps):
                moved = (features + change).requires_grad_()
                slope = torch.autograd.grad(_odds_against(network(moved), label).sum(), moved)[0]
                change.add_(slope.sign(), alpha=step).clamp_(-self.gamma, self.gamma)
        return features + change


@dataclass(frozen=True, eq=False)
class PerturbTransform(Transform):
    """Perturbs each gradient so that a network mispredicts its secret.

    The gradient moves away from its secret, which the defender passes by ``knowing``. The change
    itself then depends on the secret, and an adaptive adversary, who knows such changes, can infer
    the secret from it. Without ``knowing``, the gradient moves away from the label that the
    network predicts for it. That reveals less, but corrects the network where it is wrong. A batch
    of mixed secrets, as in training, has no other label.

    In the targeted form each gradient moves towards another label, which its own generator draws.
    That serves secrets that the network does not know, such as the users in user inference. For
    other targets, call ``PGD`` itself.

    Args:
        network: flattened gradients ``[n, D]`` -> logits ``[n, m]``, row by row; as from
            ``train_network``, trained in each round.
        pgd: size and number of steps.
        secret: secret of each gradient ``[N]``; None unless ``knowing`` sets it.

    >>> network = nn.Linear(2, 2, bias=False)
    >>> network.weight = nn.Parameter(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    >>> PerturbTransform(network)({"w": torch.tensor([[2.0, 1.0]])}, [])
    {'w': tensor([[1.9950, 1.0050]])}
    """

    network: nn.Module
    pgd: PGD = PGD()
    secret: Tensor | None = None

    def knowing(self, secret: Tensor) -> "PerturbTransform":
        """Return the transform for N gradients with the secrets ``[N]``, the network's codes."""
        return replace(self, secret=secret)

    def adapt(self, objective: Objective) -> None:
        """Return None: it is learned in each round."""

    def __call__(self, grads: Grads, rngs: Sequence[torch.Generator]) -> Grads:
        """Return the perturbed gradients, computed in the network's precision."""
        precision = next(self.network.parameters()).dtype
        count = len(next(iter(grads.values()), ()))
        if self.pgd.targeted:
            _require_each(count, len(rngs), "generators")
        if self.secret is not None:
            _require_each(count, len(self.secret), "secrets")

        def flat(clean: Tensor, rows: slice) -> Tensor:
            features = clean.to(precision)
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
                f"a secret is not among the {values} that the network was trained on; "
                "leave out knowing, or train on all of them",
            )
        if not self.pgd.targeted:
            return own
        drawn = [torch.randint(1, values, (), generator=r, device=r.device) for r in rngs[rows]]
        return (own + own.new_tensor([int(one) for one in drawn])) % values


@dataclass(frozen=True)
class LearnPerturb:
    """Trains the network of ``PerturbTransform``, which pools ``pool`` coordinates."""

    pgd: PGD
    pool: int = 1

    def __call__(
        self, features: Tensor, secret: Tensor, *, classes: int, generator: torch.Generator
    ) -> PerturbTransform:
        """Return the transform whose network is trained on public gradients."""
        network = train_network(
            features, secret, classes=classes, generator=generator, pool=self.pool
        )
        return PerturbTransform(network, self.pgd)


def _require_each(count: int, given: int, what: str) -> None:
    require(given == count, f"{count} gradients came with {given} {what}; expected one for each")


def _odds_against(logits: Tensor, label: Tensor) -> Tensor:
    """Return ``log sum_{j != label} exp(z_j) - z_label`` ``[n]``, the log-odds of other labels."""
    index = label[:, None]
    others = logits.scatter(1, index, -math.inf)
    return others.logsumexp(dim=1) - logits.gather(1, index).squeeze(1)


def train_network(
    features: Tensor,
    secret: Tensor,
    *,
    classes: int,
    generator: torch.Generator,
    pool: int = 1,
    hidden: tuple[int, ...] = (32,),
    epochs: int = 10,
    batch_size: int = 64,
    lr: float = 1e-3,
) -> nn.Module:
    """Return a small network that predicts the secret from flattened gradients.

    Adam trains it on the cross-entropy. The paper does not specify the network. A network that
    reads every coordinate does not represent an adversary that max-pools them: a perturbation that
    misleads it may keep the order of the maxima. ``pool`` gives the network nearly the view of that
    adversary, except that its windows cross from one parameter to the next.

    Args:
        features: flattened public gradients ``[n, D]``; the function standardises them.
        secret: their codes ``[n]``, from 0 to ``classes`` - 1.
        classes: m, at least 2.
        generator: draws the initial weights and the batches; the only source of randomness.
        pool: as for ``Perturb``.
        hidden: width of each hidden layer.
        epochs: passes over the features.
        batch_size: gradients in a step.
        lr: Adam's learning rate.

    Returns:
        A frozen network from gradients ``[n, D]`` to logits ``[n, m]``, in float64. The sign of a
        derivative then does not depend on the rounding of a matrix product, nor on the number of
        rows in a call.

    Raises:
        InputError: the features or secrets do not fit.

    >>> rng = torch.Generator().manual_seed(0)
    >>> secret = torch.arange(200) % 2
    >>> features = torch.randn(200, 5, generator=rng) + 6 * secret[:, None]
    >>> network = train_network(features, secret, classes=2, generator=rng)
    >>> float((network(features.double()).argmax(dim=1) == secret).double().mean())
    1.0
    """
    require(
        features.dim() == 2 and 0 not in features.shape and features.is_floating_point(),
        f"features are {list(features.shape)} {features.dtype}; expected floating [n, D]",
    )
    require(
        secret.shape == features.shape[:1] and secret.dtype == torch.int64,
        f"secrets are {list(secret.shape)} {secret.dtype}; expected [{len(features)}] torch.int64",
    )
    require(classes >= 2, f"classes is {classes}; expected at least 2")
    require(
        int(secret.min()) >= 0 and int(secret.max()) < classes,
        f"secrets run from {int(secret.min())} to {int(secret.max())}; expected codes from 0 to "
        f"{classes - 1}",
    )
    require_count(pool, _POOL)
    view = nn.Sequential(nn.Unflatten(1, (1, -1)), nn.MaxPool1d(pool, ceil_mode=True), nn.Flatten())
    features = view(features)
    mean, per_spread = _standard(features)
    network = mlp(features.shape[1], classes, hidden, generator=generator)
    network = network.to(device=features.device, dtype=features.dtype)
    inputs, optimizer = (features - mean) * per_spread, torch.optim.Adam(network.parameters(), lr)
    for _ in range(epochs):
        order = torch.randperm(len(inputs), generator=generator, device=generator.device)
        for batch in torch.split(order.to(inputs.device), batch_size):
            optimizer.zero_grad()
            with torch.enable_grad():
                loss = cross_entropy(network(inputs[batch]), secret[batch])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    network = network.double().requires_grad_(False).eval()
    first = network[0]
    assert isinstance(first, nn.Linear)
    first.weight.mul_(per_spread)  # The first layer now standardises.
    first.bias.sub_(first.weight @ mean.double())
    return network if pool == 1 else nn.Sequential(view, network)


def _standard(features: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean ``[D]`` and 1 / spread ``[D]``, 0 where a feature is constant."""
    mean, spread = features.mean(dim=0), features.std(dim=0, correction=0)
    rounding = 8 * torch.finfo(features.dtype).eps * (mean.abs() + spread.max())
    return mean, torch.where(spread > rounding, 1 / spread, 0.0)
