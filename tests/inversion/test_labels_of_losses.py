"""Labels under any loss of classes: counts and single labels, against plain autograd."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from leakgauge import InputError, Task
from leakgauge.core.reductions import reduction_of, shares
from leakgauge.gradients import params_of
from leakgauge.inversion.labels.inference import infer_labels

Loss = Callable[[Tensor, Tensor], Tensor]


def weights(classes: int) -> Tensor:
    return torch.linspace(0.5, 3.0, classes, dtype=torch.float64).roll(1)


def focal(outputs: Tensor, y: Tensor) -> Tensor:
    logp = outputs.log_softmax(1).gather(1, y[:, None])[:, 0]
    return ((1 - logp.exp()) ** 2 * -logp).mean()


class Focal(nn.CrossEntropyLoss):
    """It inherits from the cross entropy, and is none."""

    def forward(self, outputs: Tensor, y: Tensor) -> Tensor:
        return focal(outputs, y)


LOSSES: dict[str, Callable[[int], Loss]] = {
    "plain": lambda _: functional.cross_entropy,
    "sum": lambda _: nn.CrossEntropyLoss(reduction="sum"),
    "each": lambda _: nn.CrossEntropyLoss(reduction="none"),
    "weights": lambda classes: nn.CrossEntropyLoss(weights(classes)),
    "sum of weights": lambda classes: nn.CrossEntropyLoss(weights(classes), reduction="sum"),
    "smoothing": lambda _: nn.CrossEntropyLoss(label_smoothing=0.2),
    "both": lambda classes: nn.CrossEntropyLoss(weights(classes), label_smoothing=0.1),
    "focal": lambda _: focal,
    "focal class": lambda _: Focal(),
    "scaled": lambda _: lambda outputs, y: 7 * functional.cross_entropy(outputs, y),
    "temperature": lambda _: lambda outputs, y: functional.cross_entropy(outputs / 3, y),
    "multi margin": lambda _: nn.MultiMarginLoss(p=2),
}


def network(classes: int, seed: int, *, bias: bool, end: nn.Module, scale: float) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        head = nn.Linear(7, classes, bias=bias)
        model = nn.Sequential(nn.Linear(4, 7), nn.ReLU(), head, end).double()
    with torch.no_grad():
        head.weight.mul_(scale)
    return model


def gradient(task: Task, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """By plain autograd, without leakgauge."""
    value = task.loss(task.model(x), y)
    grads = torch.autograd.grad(value.mean(), list(task.model.parameters()))
    return {n: g[None] for (n, _), g in zip(task.model.named_parameters(), grads, strict=True)}


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(LOSSES)),
    st.integers(2, 6),
    st.integers(2, 12),
    st.booleans(),
    st.sampled_from(["identity", "log_softmax"]),
    st.integers(0, 10**6),
)
def test_counts_are_exact_where_the_records_are_known(name, classes, size, bias, end, seed) -> None:
    """All records are equal, so their mean slopes are known, and only the labels differ."""
    ends = {"identity": nn.Identity(), "log_softmax": nn.LogSoftmax(dim=1)}
    task = Task(network(classes, seed, bias=bias, end=ends[end], scale=1.0), LOSSES[name](classes))
    rng = torch.Generator().manual_seed(seed)
    x = torch.rand(1, 4, generator=rng, dtype=torch.float64)
    y = torch.randint(classes, (size,), generator=rng)
    with torch.no_grad():
        alive = bool(task.model[1](task.model[0](x)).any())
    if not (bias or alive):  # nothing reaches the last layer
        return
    sent = gradient(task, x.expand(size, 4), y)
    if not bool(sent["2.weight"].any() and (not bias or sent["2.bias"].abs().max() > 1e-12)):
        return  # the losses cancel, so the gradient shows nothing
    found = infer_labels(task, params_of(task.model), sent, size, method="counts", like=x[None])
    assert found.labels[0].tolist() == sorted(y.tolist())
    assert float(found.residual) < 1e-5


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(LOSSES)),
    st.integers(2, 6),
    st.sampled_from([1.0, 5.0, 20.0]),
    st.sampled_from(["identity", "log_softmax"]),
    st.integers(0, 10**6),
)
@example("both", 4, 1.0, "identity", 19375)  # the record activates no neuron of the last layer
def test_a_single_label_is_exact_also_where_the_model_is_sure(
    name, classes, scale, end, seed
) -> None:
    ends = {"identity": nn.Identity(), "log_softmax": nn.LogSoftmax(dim=1)}
    task = Task(
        network(classes, seed, bias=True, end=ends[end], scale=scale), LOSSES[name](classes)
    )
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(1, 4, generator=rng, dtype=torch.float64)
    with torch.no_grad():
        y = task.model(x).argmax(1)
    sent = gradient(task, x, y)
    if sent["2.bias"].abs().max() < 1e-12:
        return  # the loss is zero, so the gradient shows nothing
    noise = torch.randn(1, 8, 4, generator=rng, dtype=torch.float64)
    found = infer_labels(task, params_of(task.model), sent, 1, like=noise)
    assert found.labels[0].tolist() == y.tolist()


def balanced(outputs: Tensor, y: Tensor) -> Tensor:
    """The mean over the classes of a batch of their means."""
    each = functional.cross_entropy(outputs, y, reduction="none")
    members = functional.one_hot(y, outputs.shape[1]).to(each)
    sizes = members.sum(0)
    return ((each @ members) / sizes.clamp(min=1)).sum() / (sizes > 0).sum()


def centred(outputs: Tensor, y: Tensor) -> Tensor:
    """Outputs without the batch's mean: records interact."""
    return functional.cross_entropy(outputs - outputs.mean(0), y)


@pytest.mark.parametrize(
    "loss", [balanced, centred, lambda outputs, y: outputs.square().mean(), nn.MSELoss()]
)
def test_losses_in_which_records_interact_or_labels_do_not_count_are_refused(loss: Loss) -> None:
    task = Task(network(3, 0, bias=True, end=nn.Identity(), scale=1.0), loss)
    params = params_of(task.model)
    sent = {name: torch.ones_like(leaf)[None] for name, leaf in params.items()}
    like = torch.randn(1, 8, 4, dtype=torch.float64)
    for size in (1, 5):
        with pytest.raises(InputError, match=r"pass the labels") as caught:
            infer_labels(task, params, sent, size, like=like)
        assert "\n" not in str(caught.value)


def test_methods_that_read_signs_are_refused_where_signs_mislead() -> None:
    task = Task(network(3, 0, bias=False, end=nn.Identity(), scale=1.0), LOSSES["smoothing"](3))
    params = params_of(task.model)
    sent = {name: torch.ones_like(leaf)[None] for name, leaf in params.items()}
    with pytest.raises(InputError, match="the last layer has no bias"):
        infer_labels(task, params, sent, 1)
    with pytest.raises(InputError, match=r'not smallest at the label.*use "counts"'):
        infer_labels(task, params, sent, 2, method="gradinversion")


def test_a_hidden_layer_that_was_registered_last_is_refused() -> None:
    class HeadFirst(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.body = nn.Linear(5, 5), nn.Linear(6, 5)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.relu(self.body(x)))

    task = Task(HeadFirst())
    params = params_of(task.model)
    sent = {name: torch.ones_like(leaf)[None] for name, leaf in params.items()}
    with pytest.raises(InputError, match=r"^'head' runs after 'body'"):
        infer_labels(task, params, sent, 3, like=torch.randn(1, 8, 6))


@pytest.mark.parametrize("classes", [2, 3, 300])
def test_the_weights_of_a_mean_are_those_of_its_classes(classes: int) -> None:
    wanted = weights(classes)
    for name in ("weights", "both"):
        found = reduction_of(LOSSES[name](classes), classes, like=wanted)
        assert found is not None
        assert not found.summed
        torch.testing.assert_close(found.weights, wanted / wanted.max())
    summed = reduction_of(LOSSES["sum of weights"](classes), classes, like=wanted)
    assert summed is not None
    assert summed.summed
    assert bool((summed.weights == 1).all())
    assert reduction_of(balanced, classes, like=wanted) is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_share_of_a_record_in_any_precision(dtype: torch.dtype) -> None:
    y = torch.tensor([0, 1, 2, 2])
    outputs = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
    for reduction, share in (("mean", 0.25), ("sum", 1.0)):
        found = shares(nn.CrossEntropyLoss(reduction=reduction), outputs, y)
        assert found is not None
        assert (found - share).abs().max() <= 0.02 * share
