"""Observations of a model that writes in place are those of a model that copies its records."""

from collections.abc import Callable, Mapping

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from leakgauge.core.types import Dataset, Task
from leakgauge.gradients import params_of
from leakgauge.gradients.walk import walk
from leakgauge.layers.representations import layer_outputs
from leakgauge.membership.observation import hidden_outputs, observe
from leakgauge.tokens.features import batch_features, record_features
from support.writers import Case, cases

Made = Mapping[str, Tensor]


def order(task: Task, case: Case) -> Made:
    return {layer.name: torch.tensor(layer.order) for layer in walk(task, case.x)}


def of_layers(task: Task, case: Case) -> Made:
    return layer_outputs(task, params_of(task.model), case.x, max_bytes=1)


def hidden(task: Task, case: Case) -> Made:
    return hidden_outputs(task, case.x, ["body", "head"])


def observed(task: Task, case: Case) -> Made:
    data = Dataset(case.x, case.y)
    seen = observe([task, task], data, layers=["body", "head"], hidden=["body"], references=[task])
    return {
        "outputs": seen.outputs,
        "losses": seen.log_loss,
        "norms": seen.log_norm,
        "references": seen.references,
        **seen.hidden,
    }


def features(name: str | None) -> Callable[[Task, Case], Made]:
    def run(task: Task, case: Case) -> Made:
        params, rows = params_of(task.model), torch.arange(len(case.x))[:, None]
        each = record_features(task, params, case.x, name, max_bytes=1)
        return {"records": each, "batches": batch_features(task, params, case.x, rows, name)}

    return run


PATHS: dict[str, Callable[[Task, Case], Made]] = {
    "order": order,
    "layers": of_layers,
    "hidden outputs": hidden,
    "observed": observed,
    "features before the head": features(None),
    "features of the body": features("body"),
}


@pytest.mark.parametrize("path", PATHS)
@settings(max_examples=15, deadline=None)
@given(case=cases())
def test_models_are_observed_as_their_twins(path: str, case: Case) -> None:
    before = case.copied()
    found = PATHS[path](case.task, case)
    case.check_unchanged(before)
    wanted = PATHS[path](Task(before.task.model.twin(), before.task.loss), before.copied())
    torch.testing.assert_close(dict(found), dict(wanted), rtol=1e-6, atol=1e-9)
