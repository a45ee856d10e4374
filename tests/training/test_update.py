"""Signs and scales of what a client sends, and whether it still stands for a gradient."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from leakgauge.core.checks import InputError
from leakgauge.core.types import Params, Task
from leakgauge.gradients import params_of
from leakgauge.models import build
from leakgauge.training import Update, Validity


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3)).double()


def records(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 4, generator=seeded(seed), dtype=torch.float64)
    return x, torch.arange(n) % 3


def walk(model: nn.Module, x: Tensor, y: Tensor, *, lr: float, steps: int, size: int) -> None:
    """Local training as a client writes it: PyTorch's own SGD, in place."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for step in range(steps):
        rows = slice(step * size, (step + 1) * size)
        optimizer.zero_grad()
        cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()


def literal_gradient(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    cross_entropy(model(x), y).backward()
    return {name: leaf.grad.clone() for name, leaf in model.named_parameters()}


def gap(found: Params, wanted: Params) -> float:
    """l2 norm of the difference over that of ``wanted``."""
    assert list(found) == list(wanted)
    apart = sum(float((found[name] - leaf).square().sum()) for name, leaf in wanted.items())
    return math.sqrt(apart / sum(float(leaf.square().sum()) for leaf in wanted.values()))


def change_of(before: Params, after: Params) -> dict[str, Tensor]:
    return {name: after[name] - leaf for name, leaf in before.items()}


@pytest.mark.parametrize("kind", ["gradient", "change", "weights"])
def test_one_step_gives_the_gradient_whatever_was_sent(kind: str) -> None:
    model, (x, y) = network().eval(), records(5)
    before, wanted = params_of(model), literal_gradient(model, x, y)
    walk(model, x, y, lr=0.03, steps=1, size=5)
    after = params_of(model)
    sent = {"gradient": wanted, "change": change_of(before, after), "weights": after}[kind]
    found = Update(kind, sent, before, lr=0.03).as_gradient()
    assert all(len(leaf) == 1 for leaf in found.values())
    assert gap({name: leaf[0] for name, leaf in found.items()}, wanted) < 1e-6


@pytest.mark.parametrize("kind", ["change", "weights"])
def test_several_steps_give_the_mean_of_their_gradients(kind: str) -> None:
    """Against gradients noted along the way; and near the gradient of all records at the start."""
    model, (x, y) = network().eval(), records(8)
    before, start, noted = params_of(model), literal_gradient(model, x, y), []
    for step in range(4):
        rows = slice(2 * step, 2 * step + 2)
        noted.append(literal_gradient(model, x[rows], y[rows]))
        walk(model, x[rows], y[rows], lr=1e-4, steps=1, size=2)
    after = params_of(model)
    sent = change_of(before, after) if kind == "change" else after
    update = Update(kind, sent, before, lr=1e-4, steps=4, batch_size=2, records=8)
    found = {name: leaf[0] for name, leaf in update.as_gradient().items()}
    mean = {name: torch.stack([one[name] for one in noted]).mean(dim=0) for name in start}
    assert gap(found, mean) < 1e-6
    assert 1e-6 < gap(found, start) < 1e-2
    assert gap(update.after(), after) < 1e-12


def simple(kind: str = "change", **changes: Any) -> Update:
    given: dict[str, Any] = {
        "values": {"w": torch.tensor([3.0, 4.0]), "b": torch.tensor([0.0])},
        "before": {"w": torch.tensor([30.0, 40.0]), "b": torch.tensor([0.0])},
        "lr": 0.5,
        **changes,
    }
    return Update(kind, **given)


def test_measures_on_paper() -> None:
    """A change of norm 5 of weights of norm 50, over 2 steps at rate 0.5 of 3 records."""
    found = simple(steps=2, batch_size=3).validity()
    assert found.drift == pytest.approx(0.1)
    assert found.layers == {"w": pytest.approx(0.1), "b": 0.0}
    assert found.descent == pytest.approx(3 * 25 / (0.5 * 2))
    assert found.gradient_change is None
    moved = simple(values={"w": torch.zeros(2), "b": torch.ones(1)}).validity()
    assert moved.layers == {"w": 0.0, "b": math.inf}
    assert simple("gradient").validity().drift == simple("gradient").drift() == 0.0


@pytest.mark.parametrize(("size", "fires"), [(1e-6, False), (2e-7, True)])
def test_rounding_is_what_float32_loses(size: float, *, fires: bool) -> None:
    """Against the same step in float64."""
    before = torch.randn(10_000, generator=seeded(), dtype=torch.float64)
    before = before.float().double()
    step = torch.randn(10_000, generator=seeded(1), dtype=torch.float64) * size
    kept = (before + step).float()
    update = Update("weights", {"w": kept}, {"w": before.float()}, lr=1.0)
    lost = float((kept.double() - before - step).norm() / step.norm())
    assert update.validity().rounding == pytest.approx(lost, rel=0.05)
    assert ["near their rounding" in said for said in update.warnings()] == [True] * fires


def test_the_change_of_the_gradient_against_a_literal_one() -> None:
    model, (x, y) = network().eval(), records(8)
    task, before, public = Task(model, cross_entropy), params_of(model), records(6, seed=1)
    there = literal_gradient(model, *public)
    walk(model, x, y, lr=0.3, steps=4, size=2)
    here, after = literal_gradient(model, *public), params_of(model)
    update = Update("weights", after, before, lr=0.3, steps=4)
    found = update.validity(task, *public)
    assert found.gradient_change == pytest.approx(gap(here, there))
    assert "gradient changes by" in update.warnings(task, *public)[0]
    assert gap(params_of(model), after) == 0


def test_when_warnings_are_given() -> None:
    far = {"drift": 0.1, "layers": {}, "descent": 1.0, "rounding": 0.0}
    assert len(Validity(**far, gradient_change=None, steps=2).warnings()) == 1
    assert Validity(**far, gradient_change=None, steps=1).warnings() == ()
    # What was measured outweighs what was only guessed from the weights.
    assert Validity(**far, gradient_change=0.01, steps=2).warnings() == ()
    assert len(Validity(**far, gradient_change=1.0, steps=2).warnings()) == 1
    assert simple("gradient", lr=None).warnings() == ()


@pytest.mark.parametrize(
    ("lr", "init", "fires"),
    [
        (1e-4, "pytorch", False),
        (1e-2, "pytorch", True),
        (1e-3, "he", True),
    ],
)
@pytest.mark.parametrize("steps", [4, 8])
def test_the_warning_fires_where_the_approximation_breaks(
    data_folder: Path, lr: float, init: str, steps: int, *, fires: bool
) -> None:
    """The slim net on CIFAR-10; the truth is the gradient of all records at the start."""
    with np.load(data_folder / "cifar10" / "cifar10_subset.npz") as images:
        pixels = torch.from_numpy(images["x_test"][:steps]).permute(0, 3, 1, 2).double() / 255
        labels = torch.from_numpy(images["y_test"][:steps]).long()
    x = (pixels - pixels.mean(dim=(0, 2, 3), keepdim=True)) / 0.25
    made = build("slim", channels=3, classes=10, side=32, init=init, generator=seeded())
    model = made.double()
    before, truth = params_of(model), literal_gradient(model, x, labels)
    walk(model, x, labels, lr=lr, steps=steps, size=1)
    update = Update("weights", params_of(model), before, lr=lr, steps=steps, batch_size=1)
    off = gap({name: leaf[0] for name, leaf in update.as_gradient().items()}, truth)
    noise = torch.randn(16, 3, 32, 32, generator=seeded(1), dtype=torch.float64)
    task, classes = Task(model, cross_entropy), torch.arange(16) % 10
    assert (off > 0.05) == fires
    assert bool(update.warnings()) == fires
    assert bool(update.warnings(task, noise, classes)) == fires


# State dicts.


def test_state_dicts_are_taken_as_they_are() -> None:
    model, (x, y) = network(), records(6)
    before = {name: leaf.clone() for name, leaf in model.state_dict().items()}
    names = list(params_of(model))
    walk(model, x, y, lr=0.1, steps=2, size=3)
    for given in (None, model):
        update = Update.from_state_dicts(
            before, model.state_dict(), lr=0.1, steps=2, batch_size=3, records=6, model=given
        )
        assert list(update.before) == names
        assert set(update.buffers) == {
            "1.running_mean", "1.running_var", "1.num_batches_tracked"
        }  # fmt: skip
        assert gap(update.after(), params_of(model)) == 0
    assert int(update.buffers["1.num_batches_tracked"]) == 2
    assert int(update.held["1.num_batches_tracked"]) == 0


def test_frozen_parameters_are_kept_aside() -> None:
    model = network().eval()
    model[0].requires_grad_(False)
    before = {name: leaf.clone() for name, leaf in model.state_dict().items()}
    optimised = [leaf for leaf in model.parameters() if leaf.requires_grad]
    cross_entropy(model(records(3)[0]), records(3)[1]).backward()
    torch.optim.SGD(optimised, lr=0.1).step()
    update = Update.from_state_dicts(before, model.state_dict(), lr=0.1, model=model)
    assert list(update.before) == list(params_of(model))
    assert "0.weight" in update.buffers


def test_what_the_client_s_model_held_is_put_in_place(tmp_path: Path) -> None:
    """Another model of this architecture has other statistics, and so other gradients."""
    server, other, (x, y) = network().eval(), network(7).eval(), records(4)
    server[1].running_mean.uniform_(-2, 2, generator=seeded())
    server[0].requires_grad_(False)
    other[0].requires_grad_(False)
    before = {name: leaf.clone() for name, leaf in server.state_dict().items()}
    walk(server, x, y, lr=0.1, steps=1, size=4)
    Update.from_state_dicts(before, server.state_dict(), lr=0.1, model=server).save(tmp_path / "u")
    update = Update.load(tmp_path / "u")
    placed = update.in_place(other)
    placed.load_state_dict(dict(update.before), strict=False)
    assert all(torch.equal(before[name], leaf) for name, leaf in placed.state_dict().items())
    assert not torch.equal(other[1].running_mean, before["1.running_mean"])  # not touched
    with pytest.raises(InputError, match=r"the update has '0\.\w+', not in Linear"):
        update.in_place(nn.Linear(2, 2))


# The dictionaries of breaching 0.1.2. What its two users put there is written out here.


def of_breaching(model: nn.Module, x: Tensor, y: Tensor, **local: Any) -> tuple[dict, dict]:
    parameters = [leaf.detach().clone() for leaf in model.parameters()]
    metadata: dict[str, Any] = {"num_data_points": len(x), "labels": y.sort()[0]}
    if not local:  # UserSingleStep: a gradient.
        gradients = torch.autograd.grad(cross_entropy(model(x), y), list(model.parameters()))
        metadata["local_hyperparams"] = None
    else:  # UserMultiStep: p_local - p_server.
        walk(model, x, y, lr=local["lr"], steps=local["steps"], size=local["data_per_step"])
        pairs = zip(model.parameters(), parameters, strict=True)
        gradients = [(leaf - server).detach() for leaf, server in pairs]
        metadata |= {"local_hyperparams": {**local, "labels": []}, "data_key": "inputs"}
    payload = {"parameters": parameters, "buffers": None, "metadata": None}
    buffers = [leaf.clone() for leaf in model.buffers()]
    return payload, {"gradients": gradients, "buffers": buffers, "metadata": metadata}


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_both_users_of_breaching(steps: int, *, listed: bool) -> None:
    model, (x, y) = network().eval(), records(6)
    size = 6 // max(steps, 1)
    wanted = literal_gradient(model, x, y)
    local = {"lr": 1e-5, "steps": steps, "data_per_step": size} if steps else {}
    payload, shared = of_breaching(model, x, y, **local)
    given = ([payload], [shared]) if listed else (payload, shared)
    update = Update.from_breaching(*given, model)
    assert update.kind == ("change" if steps else "gradient")
    assert (update.steps, update.batch_size, update.records) == (max(steps, 1), size, 6)
    assert update.labels is not None
    assert update.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert next(iter(update.buffers)) == "1.running_mean"
    found = {name: leaf[0] for name, leaf in update.as_gradient().items()}
    assert gap(found, wanted) < (1e-3 if steps == 3 else 1e-6)


def test_a_user_of_breaching_who_keeps_the_settings_secret() -> None:
    """It looks like a gradient, but for the key that only a walk of several steps has."""
    model, (x, y) = network().eval(), records(6)
    payload, shared = of_breaching(model, x, y, lr=0.1, steps=2, data_per_step=3)
    shared["metadata"]["local_hyperparams"] = None
    with pytest.raises(InputError, match="pass lr and steps"):
        Update.from_breaching(payload, shared, model)
    assert Update.from_breaching(payload, shared, model, lr=0.1, steps=2).kind == "change"


def test_an_aggregate_of_breaching() -> None:
    model, (x, y) = network().eval(), records(6)
    payload, shared = of_breaching(model, x, y, lr=0.1, steps=2, data_per_step=3)
    shared["metadata"] |= {"num_users": 2, "num_data_points": 12}
    del shared["metadata"]["data_key"]
    update = Update.from_breaching(payload, shared, model)
    assert (update.kind, update.batch_size, update.records) == ("change", 6, 12)
    shared["metadata"]["local_hyperparams"]["steps"] = 1
    assert Update.from_breaching(payload, shared, model).kind == "gradient"
    shared["metadata"]["local_hyperparams"] = None
    with pytest.raises(InputError, match="whether it is of gradients"):
        Update.from_breaching(payload, shared, model)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda p, s: (p, {**s, "gradients": s["gradients"][:-1]}), "5 tensors came .* has 6"),
        (lambda p, s: ({}, s), "server_payload has no 'parameters'"),
        (lambda p, s: (p, [s, s]), "one query at a time"),
    ],
)
def test_dictionaries_that_are_refused(spoil: Callable[..., Any], said: str) -> None:
    model = network().eval()
    with pytest.raises(InputError, match=said):
        Update.from_breaching(*spoil(*of_breaching(model, *records(6))), model)


# Files.


def test_a_file_brings_everything_back(tmp_path: Path) -> None:
    names = ["w", "b", "a"]  # no order of the alphabet
    before = {name: torch.full((2, 3), float(i)) for i, name in enumerate(names)}
    sent = {name: leaf + 0.25 for name, leaf in before.items()}
    figures = {"lr": 1e-4 / 3, "steps": 3, "batch_size": 2, "records": 6}
    buffers = {"bn.running_mean": torch.ones(2), "bn.num_batches_tracked": torch.tensor(4)}
    written = Update("weights", sent, before, labels=torch.arange(6), buffers=buffers, **figures)
    written.save(tmp_path / "u.safetensors")
    found = Update.load(tmp_path / "u.safetensors")
    assert (found.kind, list(found.before), list(found.values)) == ("weights", names, names)
    assert {name: getattr(found, name) for name in figures} == figures
    assert found.labels is not None
    assert found.labels.tolist() == list(range(6))
    assert {name: leaf.tolist() for name, leaf in found.buffers.items()} == {
        "bn.running_mean": [1, 1], "bn.num_batches_tracked": 4
    }  # fmt: skip
    assert gap(found.values, sent) == gap(found.before, before) == 0


def test_a_gradient_needs_no_figures_in_its_file(tmp_path: Path) -> None:
    simple("gradient", lr=None).save(tmp_path / "u")
    found = Update.load(tmp_path / "u")
    assert (found.lr, found.labels, found.batch_size, found.steps) == (None, None, None, 1)


def test_files_that_are_refused(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(2)}, tmp_path / "u.pt")
    save_file({"w": torch.ones(2)}, tmp_path / "plain")
    head = {"format": "leakgauge update 1"}
    save_file({"w": torch.ones(2)}, tmp_path / "cut", head)
    save_file({"w": torch.ones(2)}, tmp_path / "nested", {**head, "names": "[" * 100_000})
    save_file({"held/" + "a." * 5000: torch.ones(2)}, tmp_path / "long", head)
    wanted = {
        "u.pt": "pickles are refused",
        "plain": "lacks the header of leakgauge",
        "cut": "damaged header",
        "nested": "damaged header",
        "long": "a name of 10,005 characters",
        "none": "no such file",
    }
    for name, said in wanted.items():
        with pytest.raises(InputError, match=rf"^update .*{said}[^\n]*$"):
            Update.load(tmp_path / name)
    with pytest.raises(InputError, match="cannot write update"):
        simple().save(tmp_path / "no folder" / "u")


# Refusals, one line each.

TWO, ONE = torch.tensor([3.0, 4.0]), torch.tensor([1.0])
REFUSALS: list[tuple[str, dict[str, Any], str]] = [
    ("gradients", {}, "kind of update is 'gradients'; did you mean 'gradient'"),
    ("change", {"lr": 0.0}, "lr is 0; expected a number above 0"),
    ("change", {"lr": -0.1}, "lr is -0.1"),
    ("change", {"lr": math.nan}, "lr is nan"),
    ("change", {"steps": 0}, "steps is 0"),
    ("change", {"steps": 2.5}, "steps is 2.5"),
    ("gradient", {"steps": 2}, "a gradient has one step, not 2"),
    ("change", {"batch_size": 0}, "batch_size is 0"),
    ("change", {"records": -1}, "records is -1"),
    ("change", {"batch_size": 4, "records": 3}, "1 steps of 4 records do not go with 3"),
    ("change", {"batch_size": 4, "steps": 2, "records": 9}, "expected 4 to 8"),
    ("change", {"values": {"w": TWO}}, "the update has no 'b'"),
    ("change", {"values": {"w": TWO, "b": ONE, "c": ONE}}, "the update has 'c', not in"),
    ("change", {"values": {"w": ONE, "b": ONE}}, r"'w' is \[1\]; expected \[2\]"),
    ("change", {"values": {"w": TWO * math.inf, "b": ONE}}, "the update: 'w' is not finite"),
    ("change", {"values": {"w": TWO, "b": ONE * math.nan}}, "the update: 'b' is not finite"),
    ("change", {"values": {"w": TWO.long(), "b": ONE}}, "'w' is torch.int64; expected floats"),
    ("change", {"before": {}}, "no weights before"),
    ("change", {"labels": ONE > 0}, r"labels are \[1\] torch.bool; expected one int64 code"),
]


@pytest.mark.parametrize("kind", ["change", "weights"])
def test_an_update_without_a_rate_is_no_gradient_but_all_else(kind: str) -> None:
    """An Adam client, for example: its change is known, the gradients behind it are not."""
    told, update = simple(kind, steps=2), simple(kind, steps=2, lr=None)
    assert gap(update.after(), told.after()) == 0
    assert update.drift() == told.drift()
    assert update.validity().descent is None
    assert update.warnings() == ()
    with pytest.raises(InputError, match="lr is missing") as refusal:
        update.as_gradient()
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("kind", "values", "said"),
    [
        ("gradient", {"w": torch.zeros(2), "b": torch.zeros(1)}, "the update is all zeros"),
        ("change", {"w": torch.zeros(2), "b": torch.zeros(1)}, "the update is all zeros"),
        ("weights", {"w": TWO * 10, "b": ONE * 0}, "the update equals the weights before"),
    ],
)
def test_a_zero_update_is_warned_of(kind: str, values: dict[str, Tensor], said: str) -> None:
    """An isolated participant that has converged sends one."""
    update = simple(kind, values=values)
    assert update.is_zero
    (warning,) = update.warnings()
    assert warning == f"{said}, so it reveals nothing; was the client trained?"
    assert not any(bool(leaf.any()) for leaf in update.as_gradient().values())
    assert not simple(kind).is_zero


@pytest.mark.parametrize(("kind", "changes", "said"), REFUSALS)
def test_refusals(kind: str, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said) as refusal:
        simple(kind, **changes)
    assert "\n" not in str(refusal.value)


def test_a_model_that_the_update_does_not_fit() -> None:
    class Model(nn.Module):
        def __init__(self, width: int, name: str = "b") -> None:
            super().__init__()
            self.w = nn.Parameter(torch.zeros(width))
            self.register_parameter(name, nn.Parameter(torch.zeros(1)))

    simple().check_fits(Model(2))
    with pytest.raises(InputError, match=r"'w' is \[2\]; expected \[3\] as Model"):
        simple().check_fits(Model(3))
    with pytest.raises(InputError, match="the update has no 'bias', which Model has"):
        simple().warnings(Task(Model(2, "bias"), cross_entropy))
    with pytest.raises(InputError, match="pass all three"):
        simple().validity(x=TWO)
