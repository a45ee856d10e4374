"""Gradients compared in bfloat16, against those of the model's own precision."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from leakgauge.core.checks import InputError
from leakgauge.core.rng import torch_stream
from leakgauge.core.types import Params, Task
from leakgauge.gradients import params_of
from leakgauge.inversion.double_backward.gradients import differentiable_gradients
from leakgauge.inversion.double_backward.precision import Rounded
from leakgauge.inversion.search.engine import reconstruct
from leakgauge.inversion.search.presets import preset
from leakgauge.inversion.search.settings import Settings
from leakgauge.models import initialise, resnet20, slim


def drawn() -> torch.Generator:
    return torch_stream(0, "net")


NETS = {
    "slim": lambda: slim(3, 10, 16, 8, generator=drawn()),
    "resnet": lambda: initialise(
        resnet20(3, 10, 8, generator=drawn()), "he-fan-out", generator=drawn()
    ),
}


def case(name: str) -> tuple[Task, Params, Tensor, Tensor]:
    task = Task(NETS[name]().eval(), F.cross_entropy)
    x = torch.rand(3, 2, 3, 16, 16, generator=torch_stream(2, "x")) - 0.5
    return task, params_of(task.model), x, torch.tensor([[1, 2], [3, 3], [0, 9]])


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(("name", "most"), [("slim", 0.05), ("resnet", 0.4)])
def test_its_gradients_are_off_by_its_rounding(name: str, most: float, rows: int) -> None:
    """Some 2^-9 for each of the roundings on the way, of which a deep network has many."""
    task, params, x, y = case(name)
    wanted = differentiable_gradients(task, params, x[:rows], y[:rows])
    found = Rounded(task, params, x[0])(x[:rows], y[:rows])
    for key, value in wanted.items():
        assert found[key].shape == value.shape
        assert found[key].dtype == torch.float32
        apart = (found[key] - value).norm() / value.norm()
        assert 1e-4 < apart < most, key


def test_the_model_itself_stays_as_it_is() -> None:
    task, params, x, y = case("resnet")
    before = {key: value.clone() for key, value in task.model.state_dict().items()}
    Rounded(task, params, x[0])(x, y)
    for key, value in task.model.state_dict().items():
        assert value.dtype == before[key].dtype
        assert torch.equal(value, before[key])
    assert all(value.dtype == torch.float32 for value in params.values())


def test_an_attack_gets_as_far_with_it() -> None:
    task, params, x, y = case("slim")
    wanted = {k: v.detach() for k, v in differentiable_gradients(task, params, x, y).items()}
    chosen = replace(preset("leakgauge", iterations=150), total_variation=0.0)
    given = {"shape": (2, 3, 16, 16), "labels": y, "seed": 0}
    given |= {"low": torch.tensor(-0.5), "high": torch.tensor(0.5)}
    full, rough = (
        reconstruct(task, params, wanted, replace(chosen, precision=precision), **given)
        for precision in ("full", "bfloat16")
    )
    assert not torch.equal(full.losses, rough.losses)
    begin = full.losses[:, 0]
    torch.testing.assert_close(rough.losses[:, 0], begin, rtol=0.2, atol=0)
    for one in (full, rough):
        assert (one.loss < 0.3 * begin).all()
    error = [(one.x - x).square().mean() for one in (full, rough)]
    # Records of a batch may come in another order, alike in both.
    torch.testing.assert_close(error[1], error[0], rtol=0.5, atol=0)


@pytest.mark.parametrize(
    "changed",
    [{"slope": "difference"}, {"optimizer": "lbfgs", "schedule": "constant"}],
)
def test_settings_that_it_does_not_serve_are_refused(changed: dict) -> None:
    with pytest.raises(InputError, match="set precision=full"):
        Settings(precision="bfloat16", **changed)


def test_a_model_that_does_not_run_in_it_is_refused() -> None:
    class Stubborn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3 * 16 * 16, 10)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x.float().flatten(1))

    task = Task(initialise(Stubborn(), generator=drawn()), F.cross_entropy)
    with pytest.raises(InputError, match="refuses bfloat16; set precision=full"):
        Rounded(task, params_of(task.model), torch.zeros(2, 3, 16, 16))
