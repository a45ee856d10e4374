"""A model that writes in place gets copies: gradients are those of plain autograd on copies."""

import ast
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import leakgauge
from leakgauge.core.checks import InputError
from leakgauge.core.types import Task
from leakgauge.gradients import (
    batch_gradients,
    local_updates,
    params_of,
    per_example_gradients,
    pooled_batch_gradients,
)
from leakgauge.gradients.clipping import clipped_gradient_function, iter_clipped_batch_gradients
from leakgauge.gradients.factored.factors import factors
from support.writers import Case, cases

SOURCE = Path(leakgauge.__file__).parent
Grads = dict[str, Tensor]


def of_factors(case: Case) -> Grads:
    found = factors(case.task, params_of(case.task.model), case.x, case.y)
    return {name: leaf for one in found.values() for name, leaf in one.gradient().items()}


def per_record(method: str) -> Callable[[Case], Grads]:
    return lambda case: per_example_gradients(
        case.task, params_of(case.task.model), case.x, case.y, method=method
    )


RECORD_PATHS = {
    "auto": per_record("auto"),
    "loop": per_record("loop"),
    "factored": of_factors,
}


@pytest.mark.parametrize("path", RECORD_PATHS)
@settings(max_examples=30, deadline=None)
@given(case=cases())
def test_gradients_of_records_are_those_of_autograd(path: str, case: Case) -> None:
    before = case.copied()
    found = RECORD_PATHS[path](case)
    case.check_unchanged(before)
    torch.testing.assert_close(
        found, before.gradients(torch.arange(len(case.x))[:, None]), rtol=1e-6, atol=1e-9
    )


BATCH_PATHS = {
    "auto": lambda task, params, x, y, rows: batch_gradients(task, params, x[rows], y[rows]),
    "views": lambda task, params, x, y, rows: batch_gradients(
        task, params, x.expand(len(rows), *x.shape), y.expand(len(rows), *y.shape)
    ),
    "loop": lambda task, params, x, y, rows: batch_gradients(
        task, params, x[rows], y[rows], method="loop"
    ),
    "pooled": lambda task, params, x, y, rows: pooled_batch_gradients(
        task, params, x, y, rows, pooled=True
    ),
    "chunked": lambda task, params, x, y, rows: pooled_batch_gradients(
        task, params, x, y, rows, pooled=False, max_bytes=1
    ),
}


@pytest.mark.parametrize("path", BATCH_PATHS)
@settings(max_examples=20, deadline=None)
@given(case=cases(), trials=st.integers(1, 3))
def test_gradients_of_batches_are_those_of_autograd(path: str, case: Case, trials: int) -> None:
    rows = torch.arange(len(case.x)).repeat(trials, 1)
    before = case.copied()
    params = params_of(case.task.model)
    found = BATCH_PATHS[path](case.task, params, case.x, case.y, rows)
    case.check_unchanged(before)
    torch.testing.assert_close(found, before.gradients(rows), rtol=1e-6, atol=1e-9)


def clipped(each: Grads, clip: float) -> Grads:
    norms = torch.cat([leaf.flatten(1) for leaf in each.values()], dim=1).norm(dim=1)
    factor = (clip / norms).clamp(max=1) / len(norms)
    return {name: torch.tensordot(factor, leaf, 1) for name, leaf in each.items()}


def in_training(case: Case) -> Grads:
    params = params_of(case.task.model)
    step = clipped_gradient_function(case.task, params, case.x, case.y, clip=0.5)
    return step(params, case.x, case.y)


def observed(case: Case) -> Grads:
    rows, params = torch.arange(len(case.x))[None], params_of(case.task.model)
    (chunk,) = iter_clipped_batch_gradients(case.task, params, case.x, case.y, rows, clip=0.5)
    return {name: leaf[0] for name, leaf in chunk[1].items()}


@pytest.mark.parametrize("path", [in_training, observed])
@settings(max_examples=15, deadline=None)
@given(case=cases())
def test_clipped_gradients_are_those_of_autograd(path: Callable, case: Case) -> None:
    before = case.copied()
    found = path(case)
    case.check_unchanged(before)
    each = before.gradients(torch.arange(len(case.x))[:, None])
    torch.testing.assert_close(found, clipped(each, 0.5), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("method", ["auto", "loop"])
@settings(max_examples=30, deadline=None)
@given(case=cases())
def test_local_steps_are_those_of_sgd(method: str, case: Case) -> None:
    before, steps = case.copied(), 2
    found = local_updates(
        case.task,
        params_of(case.task.model),
        case.x.expand(1, steps, *case.x.shape),
        case.y.expand(1, steps, *case.y.shape),
        lr=0.1,
        method=method,
    )
    case.check_unchanged(before)
    walked = before.copied().task.model
    for _ in range(steps):
        grads = before.gradient(torch.arange(len(case.x)), walked)
        with torch.no_grad():
            for name, leaf in walked.named_parameters():
                leaf -= 0.1 * grads[name]
    start = dict(before.task.model.named_parameters())
    change = {name: (leaf - start[name])[None] for name, leaf in walked.named_parameters()}
    torch.testing.assert_close(found, change, rtol=1e-6, atol=1e-9, check_stride=False)


class Writing(nn.Module):
    """Writes one of its own tensors in forward, in one of several ways."""

    def __init__(self, what: str, how: str) -> None:
        super().__init__()
        self.body, self.what, self.how = nn.Linear(3, 2), what, how
        self.register_buffer("kept", torch.ones(2, 3))
        self.frozen = nn.Parameter(torch.ones(2, 3), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        own = {"weight": self.body.weight, "kept": self.kept, "frozen": self.frozen}[self.what]
        with torch.no_grad():
            if self.how == "in place":
                own.mul_(0.5)
            elif self.how == "by data":
                own.data.mul_(0.5)
            elif self.how == "other data":
                own.data = own.data * 0.5
            else:
                torch._foreach_mul_([own.data], 0.5)
        return self.body(x * self.kept[0] * self.frozen[0])


def same_state(model: nn.Module, before: dict[str, Tensor]) -> bool:
    return all(torch.equal(leaf, before[name]) for name, leaf in model.state_dict().items())


@pytest.mark.parametrize("method", ["auto", "vmap", "loop"])
@pytest.mark.parametrize("how", ["in place", "by data", "other data", "as a list"])
@pytest.mark.parametrize("what", ["weight", "kept", "frozen"])
def test_a_write_to_the_model_is_refused_or_undone(what: str, how: str, method: str) -> None:
    model = Writing(what, how)
    before = {name: leaf.clone() for name, leaf in model.state_dict().items()}
    params = dict(model.named_parameters())
    params.pop("frozen")
    x, y = torch.randn(3, 2, 3), torch.zeros(3, 2, dtype=torch.int64)
    single = lambda: batch_gradients(Task(model), params, x, y, method=method)  # noqa: E731
    if what == "kept" and method == "loop":  # each batch starts from the model's buffers
        found = single()
        wanted = [single_gradient(model, *batch) for batch in zip(x, y, strict=True)]
        torch.testing.assert_close(found["body.weight"], torch.stack(wanted))
    else:
        with pytest.raises(InputError, match=f"writes its .* '.*{what}'"):
            single()
    assert same_state(model, before)


def single_gradient(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    own = Writing(model.what, model.how)
    own.load_state_dict(model.state_dict())
    nn.functional.cross_entropy(own(x), y).backward()
    return own.body.weight.grad


def test_an_embedding_with_a_largest_norm_is_refused() -> None:
    model = nn.Sequential(nn.Embedding(5, 3, max_norm=0.1), nn.Flatten(), nn.Linear(6, 2))
    before = {name: leaf.clone() for name, leaf in model.state_dict().items()}
    x, y = torch.zeros(1, 2, 2, dtype=torch.int64), torch.zeros(1, 2, dtype=torch.int64)
    with pytest.raises(InputError, match="max_norm=None"):
        batch_gradients(Task(model), params_of(model), x, y)
    assert same_state(model, before)


def test_a_lazy_model_is_refused() -> None:
    with pytest.raises(InputError, match=r"'0\.weight' has no shape yet"):
        Task(nn.Sequential(nn.LazyLinear(2)))


def test_a_model_that_fails_on_a_single_record_is_refused() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))
    x, y = torch.randn(2, 3), torch.zeros(2, dtype=torch.int64)
    with pytest.raises(InputError, match="BatchNorm1d"):
        per_example_gradients(Task(model), params_of(model), x, y)


def calls(path: Path) -> list[str]:
    """Return the forward passes of a file: ``functional_call(...)``, ``x.model(...)``."""
    text = path.read_text(encoding="utf-8")
    if "functional_call(" not in text and "model(" not in text:
        return []
    return [
        ast.unparse(node)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).split(".")[-1] in ("functional_call", "model")
    ]


OWN = {"inference/adversaries/encoder.py"}
"""Networks of an attacker, trained here."""


def test_tasks_run_their_models_on_copies() -> None:
    found = {
        str(path.relative_to(SOURCE)): calls(path)
        for path in SOURCE.rglob("*.py")
        if path != SOURCE / "core" / "forward.py" and calls(path)
    }
    assert {name: these for name, these in found.items() if name not in OWN} == {}
