"""Adversarial perturbation of gradients, against a network that reads the secret from them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from leakgauge.core.checks import require, require_count, require_positive
from leakgauge.core.types import Grads
from leakgauge.defenses.transform import Transform, over_rows
from leakgauge.models import mlp


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
class Perturb(Transform):
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
    >>> Perturb(network)({"w": torch.tensor([[2.0, 1.0]])}, [])
    {'w': tensor([[1.9950, 1.0050]])}
    """

    network: nn.Module
    pgd: PGD = PGD()
    secret: Tensor | None = None

    def knowing(self, secret: Tensor) -> "Perturb":
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
    """A small network that reads the secret from flattened gradients.

    Trained by Adam on the cross-entropy. The paper does not bind the defense to one network.
    One that reads every coordinate is no stand-in for an adversary that max-pools them: what fools
    it may leave the maxima in their order. ``pool`` gives the network nearly that adversary's view:
    its windows run on from one parameter to the next.

    Args:
        features: flattened public gradients ``[n, D]``; standardised inside.
        secret: their codes ``[n]``, from 0 to ``classes`` - 1.
        classes: m, at least 2.
        generator: draws the initial weights and the batches; all the randomness there is.
        pool: reads the maximum of so many neighbouring coordinates; 1 reads each.
        hidden: width of each hidden layer.
        epochs: passes over the features.
        batch_size: gradients in a step.
        lr: Adam's learning rate.

    Returns:
        Gradients ``[n, D]`` -> logits ``[n, m]``, frozen. In float64, so that the sign of a
        derivative does not hang on the rounding of a matrix product, and so on how many rows
        come at once.

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
    require_count(pool, "pooling kernel of the perturbation's network")
    view = nn.Sequential(nn.Unflatten(1, (1, -1)), nn.MaxPool1d(pool, ceil_mode=True), nn.Flatten())
    features = view(features)
    mean, per_spread = _standard(features)
    network = mlp(features.shape[1], classes, hidden, generator=generator)
    network = network.to(device=features.device, dtype=features.dtype)
    with torch.enable_grad():
        inputs = (features - mean) * per_spread
        _fit(network, inputs, secret, generator, epochs, batch_size, lr)
    network = network.double().requires_grad_(False).eval()
    first = network[0]
    assert isinstance(first, nn.Linear)
    first.weight.mul_(per_spread)  # Now it standardises by itself.
    first.bias.sub_(first.weight @ mean.double())
    return network if pool == 1 else nn.Sequential(view, network)


def _require_each(count: int, found: int, what: str) -> None:
    require(found == count, f"{count} gradients came with {found} {what}; expected one for each")


def _standard(features: Tensor) -> tuple[Tensor, Tensor]:
    """Mean ``[D]`` and one over the spread ``[D]``; 0 where a feature is constant."""
    mean, spread = features.mean(dim=0), features.std(dim=0, correction=0)
    rounding = 8 * torch.finfo(features.dtype).eps * (mean.abs() + spread.max())
    return mean, torch.where(spread > rounding, 1 / spread, 0.0)


def _fit(
    body: nn.Module,
    inputs: Tensor,
    secret: Tensor,
    generator: torch.Generator,
    epochs: int,
    batch_size: int,
    lr: float,
) -> None:
    optimizer = torch.optim.Adam(body.parameters(), lr=lr)
    for _ in range(epochs):
        order = torch.randperm(len(inputs), generator=generator, device=generator.device)
        for batch in torch.split(order.to(inputs.device), batch_size):
            optimizer.zero_grad()
            cross_entropy(body(inputs[batch]), secret[batch]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def _odds_against(logits: Tensor, label: Tensor) -> Tensor:
    """``log sum_{j != label} exp(z_j) - z_label`` ``[n]``: log-odds that it is not the label."""
    index = label[:, None]
    others = logits.scatter(1, index, -math.inf)
    return others.logsumexp(dim=1) - logits.gather(1, index).squeeze(1)
