"""The network that a perturbation misleads; it predicts the secret from gradients."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from leakgauge.core.checks import require, require_count
from leakgauge.models import mlp


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

    Adam trains it on the cross-entropy. The paper leaves the choice of the network open. A network
    that reads every coordinate does not represent an adversary that max-pools them: a perturbation
    that misleads it may keep the order of the maxima. ``pool`` gives the network nearly the view of
    that adversary, except that its windows cross from one parameter to the next.

    Args:
        features: flattened public gradients ``[n, D]``; the function standardises them.
        secret: their codes ``[n]``, from 0 to ``classes`` - 1.
        classes: m, at least 2.
        generator: draws the initial weights and the batches; the only source of randomness.
        pool: number of neighbouring coordinates of which the network reads the maximum; 1 for
            every coordinate.
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
    first.weight.mul_(per_spread)  # The first layer now standardises.
    first.bias.sub_(first.weight @ mean.double())
    return network if pool == 1 else nn.Sequential(view, network)


def _standard(features: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean ``[D]`` and 1 / spread ``[D]``, 0 where a feature is constant."""
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
