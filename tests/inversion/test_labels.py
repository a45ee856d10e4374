"""Labels from the last layer's gradient, against literal references and real images."""

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream, torch_stream
from leakgauge.core.types import Grads, Task
from leakgauge.gradients import batch_gradients, params_of
from leakgauge.inversion.labels.inference import infer_labels, label_accuracy
from leakgauge.inversion.labels.methods import (
    Expected,
    OutputLayer,
    counts,
    expectation,
    gradinversion,
    idlg,
    nearest_counts,
    output_layer_of,
)
from leakgauge.models import cnn, mlp
from leakgauge.models.initialisation import initialise


def net(
    classes: int = 5, *, bias: bool = True, act: type[nn.Module] = nn.ReLU, seed: int = 0
) -> Task:
    model = mlp(6, classes, (40,), generator=torch_stream(seed, "model")).double()
    model[1] = act()
    if not bias:
        model[2].bias = None
    return Task(model, cross_entropy)


def batches(classes: int, trials: int, size: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    rng = stream(seed, "batches")
    x = torch.from_numpy(rng.normal(size=(trials, size, 6)))
    return x, torch.from_numpy(rng.integers(classes, size=(trials, size)))


def gradients(task: Task, x: Tensor, y: Tensor) -> Grads:
    return batch_gradients(task, params_of(task.model), x, y)


# --- the last layer -------------------------------------------------------------------------------


def test_output_layer_of() -> None:
    assert output_layer_of(cnn(3, 10, generator=torch.Generator())) == OutputLayer(
        "7", "7.weight", "7.bias"
    )
    assert output_layer_of(nn.Linear(3, 2, bias=False)) == OutputLayer("", "weight", None)
    with pytest.raises(InputError, match=r"^Conv2d has no nn.Linear .* pass the labels"):
        output_layer_of(nn.Conv2d(3, 3, 1))


# --- single records -------------------------------------------------------------------------------


def literal_idlg(weight: Tensor) -> list[int]:
    """The classes whose row has no positive inner product with any other (Zhao et al.)."""
    rows = range(len(weight))
    return [i for i in rows if all(weight[i] @ weight[j] <= 0 for j in rows if j != i)]


@pytest.mark.parametrize("act", [nn.ReLU, nn.Sigmoid, nn.Tanh])
@pytest.mark.parametrize("bias", [True, False])
def test_idlg_finds_every_single_label(act: type[nn.Module], bias: bool) -> None:
    task = net(bias=bias, act=act)
    x, y = batches(5, 30, 1)
    grads, layer = gradients(task, x, y), output_layer_of(task.model)
    found = idlg(grads, layer)
    assert found.tolist() == y[:, 0].tolist()
    assert [[label] for label in found.tolist()] == list(map(literal_idlg, grads["2.weight"]))


@pytest.mark.parametrize("bias", [True, False])
def test_idlg_with_two_classes(bias: bool) -> None:
    task = net(2, bias=bias)
    x, y = batches(2, 30, 1)
    assert idlg(gradients(task, x, y), output_layer_of(task.model)).tolist() == y[:, 0].tolist()


def test_idlg_without_a_bias_where_the_model_is_sure_of_a_wrong_class() -> None:
    """The wrong class' row then points away from the label's as far as that from it."""
    task = net(bias=False)
    with torch.no_grad():
        task.model[2].weight.mul_(300)
    x, y = batches(5, 200, 1)
    grads = gradients(task, x, y)
    told = grads["2.weight"].flatten(1).norm(dim=1) > 1e-3  # it is not right already
    grads = {name: leaf[told].float() for name, leaf in grads.items()}
    assert told.sum() > 100
    assert idlg(grads, output_layer_of(task.model)).tolist() == y[told, 0].tolist()


# --- batches without duplicates -------------------------------------------------------------------


def test_gradinversion_is_the_literal_one() -> None:
    """Yin et al.: the first B of argsort(min over the features of the weight's gradient)."""
    task = net(12)
    x, y = batches(12, 20, 4)
    grads = gradients(task, x, y)
    found = gradinversion(grads, output_layer_of(task.model), 4)
    for row, weight in zip(found, grads["2.weight"], strict=True):
        lowest = [min(line.tolist()) for line in weight]
        assert row.tolist() == sorted(sorted(range(12), key=lowest.__getitem__)[:4])


def test_gradinversion_finds_labels_that_differ() -> None:
    task = net(12)
    x, _ = batches(12, 20, 4)
    rng = stream(0, "labels")
    y = torch.from_numpy(np.stack([rng.choice(12, 4, replace=False) for _ in range(20)]))
    found = gradinversion(gradients(task, x, y), output_layer_of(task.model), 4)
    assert label_accuracy(found, y).mean() >= 0.95


# --- counts ---------------------------------------------------------------------------------------


@given(st.lists(st.floats(-3, 6), min_size=2, max_size=4), st.integers(1, 5))
def test_nearest_counts_are_the_best_of_all(wanted: list[float], total: int) -> None:
    found = nearest_counts(torch.tensor([wanted], dtype=torch.float64), total)[0].tolist()
    every = itertools.product(range(total + 1), repeat=len(wanted))
    best = min(
        sum((w - k) ** 2 for w, k in zip(wanted, one, strict=True))
        for one in every
        if sum(one) == total
    )
    assert sum(found) == total
    assert min(found) >= 0
    assert sum((w - k) ** 2 for w, k in zip(wanted, found, strict=True)) == pytest.approx(best)


def test_expectation_is_a_plain_mean() -> None:
    task = net()
    x, _ = batches(5, 2, 300)  # more than one chunk
    found = expectation(task, params_of(task.model), output_layer_of(task.model), x)
    with torch.no_grad():
        for t in range(2):
            h = [task.model[1](task.model[0](one)) for one in x[t]]
            p = [torch.softmax(task.model[2](one), dim=0) for one in h]
            product = [torch.outer(a, b) for a, b in zip(p, h, strict=True)]
            for mean, parts in (
                (found.prediction, p),
                (found.feature, h),
                (found.product, product),
            ):
                torch.testing.assert_close(mean[t], sum(parts) / 300)


def test_counts_are_exact_where_the_mean_prediction_is() -> None:
    """The gradient of the bias is the mean of p - y: with the true mean p nothing is unknown."""
    task = net()
    x, y = batches(5, 20, 16)
    expected = expectation(task, params_of(task.model), output_layer_of(task.model), x)
    found = counts(gradients(task, x, y), output_layer_of(task.model), 16, expected)
    assert found.counts.tolist() == [torch.bincount(row, minlength=5).tolist() for row in y]
    assert float(found.residual.max()) < 1e-4


def test_counts_by_hand() -> None:
    """16 (p - g) is (8.48, 7.52), whose nearest whole numbers of sum 16 are 8 and 8."""
    half = Expected(torch.full((1, 2), 0.5), torch.zeros(1, 1), torch.zeros(1, 2, 1))
    grads = {"bias": torch.tensor([[-0.03, 0.03]])}
    found = counts(grads, OutputLayer("", "weight", "bias"), 16, half)
    assert found.counts.tolist() == [[8, 8]]
    assert float(found.residual) == pytest.approx(0.48)


def test_counts_without_bias_are_exact_where_all_features_are_equal() -> None:
    task = net(bias=False)
    x, y = batches(5, 20, 16)
    x = x[:1, :1].expand_as(x)
    expected = expectation(task, params_of(task.model), output_layer_of(task.model), x)
    found = counts(gradients(task, x, y), output_layer_of(task.model), 16, expected)
    assert found.counts.tolist() == [torch.bincount(row, minlength=5).tolist() for row in y]
    assert float(found.residual.max()) < 1e-4


def test_counts_without_bias_are_near_elsewhere() -> None:
    task = net(bias=False)
    x, y = batches(5, 50, 16)
    public, _ = batches(5, 1, 500, seed=1)
    found = infer_labels(task, params_of(task.model), gradients(task, x, y), 16, like=public)
    guess = torch.arange(16).expand(50, 16) % 5
    assert label_accuracy(found.labels, y).mean() > label_accuracy(guess, y).mean() + 0.05


# --- all together ---------------------------------------------------------------------------------


def test_auto_takes_idlg_for_one_record_and_counts_for_more() -> None:
    task = net()
    params = params_of(task.model)
    x, y = batches(5, 8, 1)
    one = infer_labels(task, params, gradients(task, x, y), 1)
    assert (one.method, one.labels.tolist()) == ("idlg", y.tolist())
    x, y = batches(5, 8, 6)
    many = infer_labels(task, params, gradients(task, x, y), 6, like=x)
    assert (many.method, many.labels.tolist()) == ("counts", y.sort(dim=1).values.tolist())
    assert many.counts.tolist() == [torch.bincount(row, minlength=5).tolist() for row in y]


@pytest.mark.parametrize("method", ["counts", "gradinversion"])
def test_targets_together_are_targets_one_by_one(method: str) -> None:
    task = net(7)
    params = params_of(task.model)
    x, y = batches(7, 5, 6)
    grads, like = gradients(task, x, y), x[:, :2]
    both = infer_labels(task, params, grads, 6, method=method, like=like)
    for t in range(5):
        own = {name: leaf[t : t + 1] for name, leaf in grads.items()}
        alone = infer_labels(task, params, own, 6, method=method, like=like[t : t + 1])
        assert alone.labels[0].tolist() == both.labels[t].tolist()
        assert alone.counts[0].tolist() == both.counts[t].tolist()


def test_noise_follows_from_the_seed_and_the_model_stays_as_it_is() -> None:
    task = net()
    before = {name: value.clone() for name, value in task.model.state_dict().items()}
    x, y = batches(5, 8, 6)
    found = [
        infer_labels(
            task, params_of(task.model), gradients(task, x, y), 6, record=(6,), rng=stream(0, "n")
        )
        for _ in range(2)
    ]
    assert torch.equal(found[0].labels, found[1].labels)
    assert label_accuracy(found[0].labels, y).mean() > 0.8
    assert all(torch.equal(before[name], now) for name, now in task.model.state_dict().items())
    assert not any(part._forward_pre_hooks for part in task.model.modules())


@given(st.lists(st.integers(0, 3), min_size=6, max_size=6))
def test_accuracy_is_the_overlap_of_multisets(labels: list[int]) -> None:
    found, truth = labels[:3], labels[3:]
    overlap = sum((Counter(found) & Counter(truth)).values())
    measured = label_accuracy(torch.tensor([found]), torch.tensor([truth]))
    assert measured.tolist() == pytest.approx([overlap / 3])


# --- refusals -------------------------------------------------------------------------------------

TASK = net()
GRADS = gradients(TASK, *batches(5, 2, 6))
LIKE = batches(5, 1, 9)[0]


@pytest.mark.parametrize(
    ("change", "settings", "message"),
    [
        ({"2.bias": None}, {}, "'2.bias', the last layer, has no gradient"),
        ({"2.bias": torch.zeros(2, 5)}, {}, "the gradient of '2.bias' is all zero, so it shows no"),
        ({"2.bias": torch.full((2, 5), torch.nan)}, {}, "'2.bias' is not finite everywhere"),
        ({"2.bias": GRADS["2.bias"][0]}, {}, "'2.bias' is [5]; expected T of [5]"),
        ({"2.weight": torch.ones(2, 9, 40)}, {}, "'2.weight' is [2, 9, 40]; expected T of [5, 40]"),
        ({}, {"like": None}, "counting labels needs the model's mean prediction; pass like="),
        ({}, {"method": "idlg"}, 'batch size is 6; method "idlg" expects 1'),
        ({}, {"method": "gradinversion"}, "6 records have a label twice where there are 5"),
        ({}, {"method": "count"}, "method is 'count'; did you mean 'counts'?"),
    ],
)
def test_refusals(change: dict, settings: dict, message: str) -> None:
    chosen = {"like": LIKE, **settings}
    grads = {name: leaf for name, leaf in {**GRADS, **change}.items() if leaf is not None}
    with pytest.raises(InputError) as caught:
        infer_labels(TASK, params_of(TASK.model), grads, 6, **chosen)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_model_with_other_outputs_than_its_last_layer_is_refused() -> None:
    task = Task(nn.Sequential(nn.Linear(6, 5), nn.Unflatten(1, (5, 1))), cross_entropy)
    params = params_of(task.model)
    with pytest.raises(InputError, match=r"outputs \[9, 5, 1\]; expected \[9, 5\]"):
        expectation(task, params, output_layer_of(task.model), LIKE.float())


class HeadFirst(nn.Module):
    """What is registered last gives no logits; its shape alone would not tell."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.body = nn.Linear(5, 5), nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(torch.relu(self.body(x)))[:, :4]


def test_single_records_are_refused_a_layer_that_gives_no_logits() -> None:
    task = Task(HeadFirst(), cross_entropy)
    grads = gradients(task, torch.randn(3, 1, 6), torch.zeros(3, 1, dtype=torch.int64))
    for knowledge in ({"like": LIKE.float()}, {"record": (6,), "rng": stream(0, "n")}):
        with pytest.raises(InputError, match=r"expected \[2, 5\], one score for each class"):
            infer_labels(task, params_of(task.model), grads, 1, **knowledge)


def test_one_logit_tells_no_label() -> None:
    task = Task(nn.Linear(6, 1), lambda out, y: (out[:, 0] - y.float()).square().mean())
    grads = gradients(task, torch.randn(3, 1, 6), torch.ones(3, 1, dtype=torch.int64))
    with pytest.raises(InputError, match=r"Linear has one output, .* pass the labels"):
        infer_labels(task, params_of(task.model), grads, 1)


def test_no_bias_and_no_feature_is_refused() -> None:
    nothing = Expected(torch.full((1, 5), 0.2), torch.zeros(1, 40), torch.zeros(1, 5, 40))
    with pytest.raises(InputError, match="no bias and a mean input of zero"):
        counts(GRADS, OutputLayer("2", "2.weight", None), 6, nothing)


def test_one_gradient_without_its_stack_is_refused() -> None:
    bare = {name: leaf[0] for name, leaf in GRADS.items()}
    with pytest.raises(InputError, match=r"'2.bias' is \[5\]; expected 2 axes, T the first"):
        idlg(bare, output_layer_of(TASK.model))


def test_a_frozen_last_layer_is_refused() -> None:
    task = net()
    task.model[2].requires_grad_(False)
    with pytest.raises(InputError, match=r"^'2.weight', the last layer, has no gradient"):
        infer_labels(task, params_of(task.model), {"0.bias": GRADS["0.bias"]}, 6, like=LIKE)


# --- real images ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cifar(data_folder: Path) -> tuple[Tensor, Tensor, Tensor]:
    """Test images, their labels, and training images for public ones; channels standardised."""
    with np.load(data_folder / "cifar10" / "cifar10_subset.npz") as held:
        x, y, public = held["x_test"][:1000], held["y_test"][:1000], held["x_train"][:512]
    pixels = [torch.from_numpy(part).permute(0, 3, 1, 2).float() / 255 for part in (x, public)]
    mean, std = pixels[1].mean(dim=(0, 2, 3)), pixels[1].std(dim=(0, 2, 3))
    x, public = ((part - mean[:, None, None]) / std[:, None, None] for part in pixels)
    return x, torch.from_numpy(y).long(), public


def accuracy_on(cifar: tuple[Tensor, Tensor, Tensor], task: Task, size: int, **knowledge) -> float:
    x, y, _ = cifar
    rng = stream(0, "rows", size)
    rows = torch.from_numpy(np.stack([rng.choice(len(x), size, replace=False) for _ in range(50)]))
    params = params_of(task.model)
    found = infer_labels(task, params, gradients(task, x[rows], y[rows]), size, **knowledge)
    return float(label_accuracy(found.labels, y[rows]).mean())


def test_labels_of_cifar_with_the_initialisation_of_pytorch(cifar) -> None:
    task = Task(cnn(3, 10, generator=torch_stream(0, "model")), cross_entropy)
    assert accuracy_on(cifar, task, 1) == 1.0
    assert accuracy_on(cifar, task, 32, record=(3, 32, 32), rng=stream(0, "noise")) >= 0.99
    assert accuracy_on(cifar, task, 32, like=cifar[2][None]) >= 0.99


def test_public_images_beat_noise_with_the_initialisation_of_he(cifar) -> None:
    model = cnn(3, 10, generator=torch_stream(0, "model"))
    model = initialise(model, "he", generator=torch_stream(0, "he"))
    task = Task(model, cross_entropy)
    noise = accuracy_on(cifar, task, 32, record=(3, 32, 32), rng=stream(0, "noise"))
    public = accuracy_on(cifar, task, 32, like=cifar[2][None])
    assert 0.6 <= noise < public
    assert 0.9 <= public < 1
