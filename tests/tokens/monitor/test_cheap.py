"""The cheap measure of a monitor against gradients of single records, computed one by one."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from leakgauge import DPSGD, Monitor, Noise, Prune
from leakgauge.core.rng import torch_stream
from leakgauge.defenses.defense import Defense
from leakgauge.tokens.monitor.passes import raw
from support.loops import batches, network


def centred(kernel: Tensor) -> Tensor:
    """The U-centred kernel, from its definition (Szekely and Rizzo 2014), entry by entry."""
    n = len(kernel)
    zero = kernel.clone().fill_diagonal_(0)
    made = torch.zeros_like(kernel)
    for i in range(n):
        for j in range(n):
            if i != j:
                made[i, j] = (
                    zero[i, j]
                    - zero[i].sum() / (n - 2)
                    - zero[:, j].sum() / (n - 2)
                    + zero.sum() / ((n - 1) * (n - 2))
                )
    return made


def literal(rows: Sequence[Tensor], x: Tensor) -> float:
    """Debiased CKA of the rows' inner products and those of the inputs."""
    flat = torch.stack(list(rows)).double()
    first, second = centred(flat @ flat.T), centred(x.flatten(1).double() @ x.flatten(1).double().T)
    scale = (first * first).sum() * (second * second).sum()
    return float((first * second).sum() / scale.sqrt())


def record_gradients(model: nn.Module, x: Tensor, y: Tensor) -> list[dict[str, Tensor]]:
    """The gradient of each record's loss, by a separate backward pass."""
    found = []
    names = [name for name, _ in model.named_parameters()]
    for one_x, one_y in zip(x, y, strict=True):
        loss = functional.cross_entropy(model(one_x[None]), one_y[None])
        grads = torch.autograd.grad(loss, list(model.parameters()))
        found.append(dict(zip(names, grads, strict=True)))
    return found


def flat(grads: dict[str, Tensor], only: str = "") -> Tensor:
    return torch.cat([leaf.flatten() for name, leaf in grads.items() if name.startswith(only)])


def watched(model: nn.Module, x: Tensor, y: Tensor, **settings: object) -> float:
    """The cheap measure of one step of a plain loop."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Monitor(model, checkpoints=0, **settings) as monitor:  # type: ignore[arg-type]
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert len(monitor.records) == 1, monitor.notes
    value: float = monitor.records[0]["cheap"]
    return value


def test_it_is_that_of_gradients_computed_one_by_one() -> None:
    model = network()
    ((x, y),) = batches(1, size=12)
    rows = [flat(one) for one in record_gradients(model, x, y)]
    assert watched(model, x, y) == pytest.approx(literal(rows, x), abs=1e-4)


def test_it_takes_the_layers_and_records_that_are_asked_for() -> None:
    model = network()
    ((x, y),) = batches(1, size=12)
    rows = [flat(one, "3.") for one in record_gradients(model, x, y)]
    expected = literal(rows[:7], x[:7])
    assert watched(model, x, y, layers=["3"], records=7) == pytest.approx(expected, abs=1e-4)


def test_words_are_compared_by_how_often_a_record_has_them() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(20, 3))
    x, y = torch.randint(9, (10, 5)), torch.randint(3, (10,))
    rows = [flat(one) for one in record_gradients(model, x, y)]
    counts = torch.stack([torch.bincount(one, minlength=9) for one in x]).float()
    assert watched(model, x, y) == pytest.approx(literal(rows, counts), abs=1e-4)
    assert torch.equal(raw(x) @ raw(x).T, counts @ counts.T)


@pytest.mark.parametrize("settings", [Prune(rate=0.7), DPSGD(clip=0.5, noise=0.1), Noise(0.01)])
def test_a_defense_changes_each_record_as_if_it_left_alone(
    settings: Prune | DPSGD | Noise,
) -> None:
    model = network()
    ((x, y),) = batches(1, size=12)
    defense: Defense = settings.build(batch_size=12)
    rows = []
    for number, grads in enumerate(record_gradients(model, x, y)):
        rng = torch_stream(0, "record", 0, number)
        one = {name: leaf[None] for name, leaf in grads.items()}
        if defense.per_example is not None:
            one = dict(defense.per_example(one, [rng]))
        rows.append(flat({k: v[0] for k, v in defense.update(one, [rng]).items()}))
    value = watched(model, x, y, defense=settings)
    assert value == pytest.approx(literal(rows, x), abs=1e-3)
    assert abs(value - watched(network(), x, y)) > 1e-3


def test_the_gradient_of_a_batch_is_the_mean_of_defended_ones() -> None:
    """What the stream keeps under DPSGD is what the defense releases, up to its noise."""
    model = network()
    ((x, y),) = batches(1, size=12)
    clip = 0.3
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    defense = DPSGD(clip=clip, noise=0.0)
    expected = torch.zeros(0)
    total: dict[str, Tensor] = {}
    for grads in record_gradients(model, x, y):
        factor = (clip / flat(grads).norm()).clamp(max=1)
        for name, leaf in grads.items():
            total[name] = total.get(name, 0) + factor * leaf / 12  # type: ignore[assignment]
    expected = flat(total, "5.")
    monitor = Monitor(model, checkpoints=[10], gather=1, defense=defense, width=10**4)
    with monitor:
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        kept = monitor._observer.reading.split(monitor._estimates._kept_gradients.rows())
    # The layer's numbers are kept, in an order of their own.
    assert torch.allclose(kept["5"][0].sort().values, expected.sort().values, atol=1e-6)


@pytest.mark.calibration
def test_planted_inputs_show_and_independent_ones_do_not() -> None:
    """One linear layer whose output gradients are equal shows its inputs; others show nothing."""
    torch.manual_seed(0)
    model = nn.Linear(30, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    planted, independent = [], []
    with Monitor(model, every=1, checkpoints=0) as monitor:
        for _ in range(40):
            optimizer.zero_grad()
            model(torch.randn(24, 30)).sum().backward()
            optimizer.step()
    planted = [one["cheap"] for one in monitor.records]
    with Monitor(model, every=1, checkpoints=0) as monitor:
        for _ in range(40):
            optimizer.zero_grad()
            model(torch.randn(24, 30)).sum().backward()
            monitor._observer.taps.last.x = torch.randn(24, 30)  # type: ignore[union-attr]
            optimizer.step()
    independent = [one["cheap"] for one in monitor.records]
    assert min(planted) > 0.999
    mean, spread = torch.tensor(independent).mean(), torch.tensor(independent).std()
    assert abs(mean) < 3 * spread / 40**0.5
    assert spread < 0.15


class Cleared(nn.Module):
    """Sets a part of its images to zero, in place or in a copy."""

    def __init__(self, *, copies: bool) -> None:
        super().__init__()
        self.net, self.copies = network(), copies

    def forward(self, x: Tensor) -> Tensor:
        x = x.clone() if self.copies else x
        x[:, 0] = 0
        return self.net(x)


def test_records_count_as_they_came_where_the_model_changes_them() -> None:
    ((x, y),) = batches(1, size=12)
    found = [watched(Cleared(copies=copies), x.clone(), y) for copies in (False, True)]
    assert found[0] == found[1]
