"""Outputs in tuples and mappings, autocast and parametrised weights give the true gradients."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.functional import cross_entropy

from leakgauge.core.checks import InputError
from leakgauge.core.losses import record_losses
from leakgauge.core.reductions import refuse_penalty, refuse_summed
from leakgauge.core.types import Dataset, Task
from leakgauge.gradients import params_of
from leakgauge.gradients.clipping import iter_clipped_batch_gradients
from leakgauge.gradients.factored.factors import Factoring
from leakgauge.inversion.exact import first_linear
from leakgauge.inversion.labels.methods import output_layer_of
from leakgauge.runs.sources import _refuse_loss


class InAMapping(nn.Sequential):
    """Scores among other outputs, one of which has no axis of records."""

    def forward(self, x):
        return {"scores": super().forward(x), "also": (x.sum(1), torch.ones(()), None)}


class Autocast(nn.Sequential):
    """A forward pass in bfloat16 of parameters in float32."""

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return super().forward(x).float()


def of_scores(outputs, y, **settings):
    return cross_entropy(outputs["scores"], y, **settings)


def parts() -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)]


def normed() -> nn.Module:
    model = nn.Sequential(*parts())
    nn.utils.parametrizations.weight_norm(model[0])
    return model


def tasks() -> dict[str, Task]:
    return {
        "mapping": Task(InAMapping(*parts()), of_scores),
        "autocast": Task(Autocast(*parts())),
        "weight norm": Task(normed()),
    }


def records(count: int = 12) -> Dataset:
    drawn = torch.Generator().manual_seed(0)
    x = torch.randn(count, 6, generator=drawn)
    return Dataset(x, torch.randint(3, (count,), generator=drawn))


def alone(task: Task, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
    own = copy.deepcopy(task.model)
    task.loss(own(x[None]), y[None]).backward()
    return {name: leaf.grad for name, leaf in own.named_parameters()}


@pytest.mark.parametrize("kind", tasks())
def test_clipped_gradients_are_those_of_a_loop(kind: str) -> None:
    task, data, clip = tasks()[kind], records(), 0.3
    rows = torch.tensor([[0, 1, 2, 3], [4, 5, 0, 0]])
    each = [alone(task, *one) for one in zip(data.x, data.y, strict=True)]
    norms = [torch.cat([leaf.flatten() for leaf in one.values()]).norm() for one in each]
    assert max(norms) > clip
    coming = iter_clipped_batch_gradients(
        task, params_of(task.model), data.x, data.y, rows, clip=clip
    )
    found = [grads for _, grads in coming]
    for name in each[0]:
        wanted = [
            sum(each[at][name] * min(1.0, float(clip / norms[at])) for at in batch) / 4
            for batch in rows.tolist()
        ]
        made = torch.cat([grads[name] for grads in found])
        # autocast rounds to bfloat16, in another order for a batch than for a record
        rough = {"rtol": 0.05, "atol": 5e-3} if kind == "autocast" else {}
        torch.testing.assert_close(made, torch.stack(wanted), **rough)


@pytest.mark.parametrize("kind", tasks())
def test_factors_are_the_gradients_of_records(kind: str) -> None:
    task, data = tasks()[kind], records(5)
    params = params_of(task.model)
    found = Factoring.start(task, params, data.x, data.y)(params, data.x, data.y)
    assert list(found) == ["0", "2"]
    made = {name: leaf for one in found.values() for name, leaf in one.gradient().items()}
    for at in range(5):
        for name, leaf in alone(task, data.x[at], data.y[at]).items():
            rough = {"rtol": 0.05, "atol": 5e-3} if kind == "autocast" else {}
            torch.testing.assert_close(made[name][at], leaf, **rough)


@pytest.mark.parametrize("vectorised", [True, False])
def test_losses_of_records_in_a_mapping(*, vectorised: bool) -> None:
    task, data = tasks()["mapping"], records()
    outputs = task.model(data.x)
    found = record_losses(of_scores, outputs, data.y, vectorised=vectorised)
    torch.testing.assert_close(found, of_scores(outputs, data.y, reduction="none"))


def test_outputs_without_an_axis_of_records_are_refused() -> None:
    with pytest.raises(InputError, match=r"one row for each of 3 records: \[2, 4\]"):
        record_losses(
            lambda made, y: made.sum() + y.sum(), torch.ones(2, 4), torch.ones(3), vectorised=True
        )


def test_a_sum_over_a_mapping_is_refused_and_a_mean_is_not() -> None:
    task, data = tasks()["mapping"], records()
    refuse_summed(task.loss, task.model(data.x), data.y)
    _refuse_loss(task, data)
    with pytest.raises(InputError, match="the sum of their losses"):
        _refuse_loss(Task(task.model, lambda o, y: of_scores(o, y, reduction="sum")), data)


def test_a_penalty_beside_a_mapping_is_refused() -> None:
    task, data = tasks()["mapping"], records()
    weight = task.model[0].weight
    with pytest.raises(InputError, match="reads a trainable tensor"):
        refuse_penalty(
            lambda o, y: of_scores(o, y) + weight.square().sum(), task.model(data.x), data.y
        )


def test_readers_of_weights_refuse_a_parametrised_layer() -> None:
    with pytest.raises(InputError, match="is ParametrizedLinear"):
        first_linear(normed())
    last = nn.Sequential(*parts())
    nn.utils.parametrizations.weight_norm(last[2])
    with pytest.raises(InputError, match="makes its weight from others"):
        output_layer_of(last)


def test_a_model_that_cannot_be_copied_is_refused_in_one_line() -> None:
    model = nn.Sequential(*parts())
    model.cached = functional.relu(model[0].weight)
    with pytest.raises(InputError, match="Sequential cannot be copied"):
        _refuse_loss(Task(model), records())
