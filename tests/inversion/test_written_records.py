"""Attacks on a model that writes in place find what they find on one that copies its records."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
import torch
from hypothesis import given, reject, settings
from torch import Tensor

from leakgauge.core.types import Task
from leakgauge.gradients import batch_gradients, params_of
from leakgauge.inversion.double_backward.gradients import differentiable_gradients
from leakgauge.inversion.labels.inference import infer_labels
from leakgauge.inversion.search.checks import classes_of
from leakgauge.inversion.search.engine import reconstruct
from leakgauge.inversion.search.objective import Cosine
from leakgauge.inversion.search.settings import SearchSettings
from leakgauge.inversion.search.simulate import LocalSteps
from support.writers import Case, cases

Made = Mapping[str, Tensor]
QUICK = SearchSettings(objective=Cosine(), iterations=2)


def observed(task: Task, case: Case) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    params = params_of(task.model)
    return params, dict(batch_gradients(task, params, case.x[None], case.y[None]))


def searched(**more) -> Callable[[Task, Case], Made]:
    def run(task: Task, case: Case) -> Made:
        params, grads = observed(task, case)
        found = reconstruct(
            task,
            params,
            grads,
            more.get("settings", QUICK),
            shape=tuple(case.x.shape),
            seed=0,
            labels=case.y[None],
            local=more.get("local"),
            start=case.x[None] + 0.1,
        )
        return {"x": found.x, "losses": found.losses}

    return run


def slope(task: Task, case: Case) -> Made:
    params = params_of(task.model)
    x = case.x.expand(2, *case.x.shape).clone().requires_grad_()
    found = differentiable_gradients(task, params, x, case.y.expand(2, *case.y.shape))
    total = sum(leaf.square().sum() for leaf in found.values())
    return {**found, "x": torch.autograd.grad(total, x, allow_unused=True)[0]}


def labels(task: Task, case: Case) -> Made:
    params, grads = observed(task, case)
    guess = infer_labels(task, params, grads, len(case.x), like=case.x[None])
    return {"labels": guess.labels, "classes": torch.tensor(classes_of(task, params, case.x))}


PATHS: dict[str, Callable[[Task, Case], Made]] = {
    "search": searched(),
    "difference": searched(settings=SearchSettings(Cosine(), iterations=2, slope="difference")),
    "simulated": searched(local=LocalSteps(1, 0.1, epochs=2)),
    "slope": slope,
    "labels": labels,
}


@pytest.mark.parametrize("path", PATHS)
@settings(max_examples=12, deadline=None)
@given(case=cases(classes=True))
def test_attacks_find_what_they_find_on_the_twin(path: str, case: Case) -> None:
    before = case.copied()
    try:
        found = PATHS[path](case.task, case)
    finally:
        case.check_unchanged(before)
    twin = Task(before.task.model.twin(), before.task.loss)
    wanted = PATHS[path](twin, before.copied())
    if not close(PATHS[path](twin, replace(before.copied(), x=before.x * (1 + 1e-12))), wanted):
        reject()  # the search amplifies rounding, so that no two ways of computing agree
    torch.testing.assert_close(dict(found), dict(wanted), rtol=1e-6, atol=1e-9)


def close(one: Made, other: Made) -> bool:
    return all(torch.allclose(one[n], other[n], rtol=1e-6, atol=1e-9) for n in other)
