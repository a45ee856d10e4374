"""Gradients of any loss: against a plain autograd loop, on every path."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from leakgauge import InputError, Task
from leakgauge.core.losses import bce, is_class_loss, mse
from leakgauge.defenses import Clip
from leakgauge.gradients import batch_gradients, params_of, per_example_gradients
from leakgauge.gradients.clipping import clipped_gradient_function, iter_clipped_batch_gradients
from leakgauge.training.client import Client
from leakgauge.training.sending import send

N = 12


def pinball(outputs: Tensor, targets: Tensor) -> Tensor:
    """A user's loss that returns one value per record."""
    apart = targets - outputs[:, 0]
    return torch.maximum(0.9 * apart, -0.1 * apart)


def each_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, targets, reduction="none")


def targets_of(kind: str) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    if kind == "numbers":
        return torch.randn(N, generator=generator, dtype=torch.float64)
    if kind == "several numbers":
        return torch.randn(N, 3, generator=generator, dtype=torch.float64)
    if kind == "labels":
        return torch.randint(2, (N, 3), generator=generator).double()
    return torch.randint(3, (N,), generator=generator)


CASES = [
    ("mse", 1, "numbers"),
    (functional.mse_loss, 3, "several numbers"),
    (nn.HuberLoss(), 3, "several numbers"),
    ("bce", 3, "labels"),
    (functional.binary_cross_entropy_with_logits, 3, "labels"),
    (pinball, 1, "numbers"),
    ("cross_entropy", 3, "classes"),
    (each_entropy, 3, "classes"),
]


def case(loss: object, outputs: int, kind: str) -> tuple[Task, Tensor, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, outputs)).double()
    return Task(model, loss), torch.randn(N, 5, dtype=torch.float64), targets_of(kind)  # type: ignore[arg-type]


def literal(loss: object, task: Task, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """The gradient of the mean loss of a batch, written out for each loss."""
    model = copy.deepcopy(task.model)
    out = model(x)
    if loss == "mse":
        value = ((out[:, 0] - y) ** 2).sum() / len(y)
    elif loss is functional.mse_loss:
        value = ((out - y) ** 2).mean()
    elif isinstance(loss, nn.HuberLoss):
        apart = (out - y).abs()
        value = torch.where(apart < 1, apart**2 / 2, apart - 0.5).mean()
    elif loss in ("bce", functional.binary_cross_entropy_with_logits):
        p = out.sigmoid()
        value = -(y * p.log() + (1 - y) * (1 - p).log()).mean()
    elif loss is pinball:
        apart = y - out[:, 0]
        value = torch.where(apart > 0, 0.9 * apart, -0.1 * apart).sum() / len(y)
    else:
        value = -out.log_softmax(1)[range(len(y)), y].mean()
    value.backward()
    return {name: leaf.grad for name, leaf in model.named_parameters() if leaf.grad is not None}


def close(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    assert found.keys() == wanted.keys()
    for name, leaf in wanted.items():
        torch.testing.assert_close(found[name], leaf)


@pytest.mark.parametrize("method", ["vmap", "loop"])
@pytest.mark.parametrize(("loss", "outputs", "kind"), CASES)
def test_batches_and_records_agree_with_autograd(loss, outputs, kind, method) -> None:
    task, x, y = case(loss, outputs, kind)
    params = params_of(task.model)
    batches = batch_gradients(
        task, params, x.view(3, 4, 5), y.view(3, 4, *y.shape[1:]), method=method
    )
    each = per_example_gradients(task, params, x, y, method=method)
    for row in range(3):
        rows = slice(4 * row, 4 * row + 4)
        close({k: v[row] for k, v in batches.items()}, literal(loss, task, x[rows], y[rows]))
    for row in (0, N - 1):
        one = slice(row, row + 1)
        close({k: v[row] for k, v in each.items()}, literal(loss, task, x[one], y[one]))


@pytest.mark.parametrize(("loss", "outputs", "kind"), CASES)
def test_clipping_agrees_with_autograd(loss, outputs, kind) -> None:
    task, x, y = case(loss, outputs, kind)
    params, clip = params_of(task.model), 0.3
    wanted = {name: torch.zeros_like(leaf) for name, leaf in params.items()}
    for row in range(N):
        alone = literal(loss, task, x[row : row + 1], y[row : row + 1])
        norm = torch.sqrt(sum((leaf**2).sum() for leaf in alone.values()))
        for name, leaf in alone.items():
            wanted[name] += leaf * min(1.0, clip / float(norm)) / N
    rows = torch.arange(N)[None]
    ((_, chunk),) = iter_clipped_batch_gradients(task, params, x, y, rows, clip=clip)
    close({name: leaf[0] for name, leaf in chunk.items()}, wanted)
    close(clipped_gradient_function(task, params, x, y, clip=clip)(params, x, y), wanted)
    client = Client(batch_size=N, defense=Clip(l2=clip).build(batch_size=N))
    sent = send(task, params, x[None], y[None], client, seed=0)
    close({name: leaf[0] for name, leaf in sent.grads.items()}, wanted)


@pytest.mark.parametrize(("loss", "outputs", "kind"), CASES)
def test_local_steps_agree_with_autograd(loss, outputs, kind) -> None:
    """The update of two steps, on the scale of a gradient, is the sum of both gradients."""
    task, x, y = case(loss, outputs, kind)
    params, lr = params_of(task.model), 0.1
    client = Client(batch_size=N // 2, local_steps=2, local_lr=lr)
    sent = send(task, params, x[None], y[None], client, seed=0)
    first = literal(loss, task, x[: N // 2], y[: N // 2])
    moved = Task(copy.deepcopy(task.model), task.loss)
    with torch.no_grad():
        for name, leaf in moved.model.named_parameters():
            leaf -= lr * first[name]
    second = literal(loss, moved, x[N // 2 :], y[N // 2 :])
    found = {name: leaf[0] for name, leaf in sent.grads.items()}
    close(found, {name: (first[name] + second[name]) / 2 for name in first})


@pytest.mark.parametrize(
    ("loss", "outputs", "kind", "said"),
    [
        (
            functional.mse_loss,
            1,
            "numbers",
            r"each of the outputs \[2, 1\] with each of the targets \[2\]",
        ),
        ("mse", 2, "numbers", "expected one target for each output"),
        ("bce", 2, "labels", "expected one target for each output"),
        ("cross_entropy", 3, "numbers", "the loss does not fit outputs"),
        (
            lambda out, y: functional.mse_loss(out, y, reduction="none"),
            *(3, "several numbers", "expected a scalar, for example by reduction='mean', or one"),
        ),
    ],
)
def test_a_loss_that_does_not_fit_is_refused_in_one_line(loss, outputs, kind, said) -> None:
    task, x, y = case(loss, outputs, kind)
    with pytest.raises(InputError, match=said) as refused:
        batch_gradients(task, params_of(task.model), x[None], y[None])
    assert "\n" not in str(refused.value)


def test_a_task_takes_a_name_or_a_function() -> None:
    assert Task(nn.Linear(1, 2)).loss is functional.cross_entropy
    with pytest.raises(InputError, match="no loss is called 'msee'; did you mean 'mse'"):
        Task(nn.Linear(1, 1), "msee")
    with pytest.raises(InputError, match="the loss of a Task is int; expected a function"):
        Task(nn.Linear(1, 1), 3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("loss", "classes"),
    [
        (functional.cross_entropy, True),
        (nn.CrossEntropyLoss(label_smoothing=0.1), True),
        (each_entropy, False),  # gives no scalar; Task.mean_loss does
        (Task(nn.Linear(1, 1), each_entropy).mean_loss, True),
        (functional.mse_loss, False),
        *((mse, False), (bce, False)),
    ],
)
def test_only_a_loss_of_classes_draws_to_the_class_alone(loss, classes) -> None:
    assert is_class_loss(loss, 2, like=torch.zeros(1)) is classes
