import contextlib
import copy
import warnings
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from leakgauge.core.checks import InputError
from leakgauge.core.types import Task
from leakgauge.gradients import (
    batch_gradients,
    batching,
    check_vectorisable,
    iter_batch_gradients,
    local_updates,
    params_of,
    per_example_gradients,
    pooled_batch_gradients,
    pooling,
    probing,
)
from leakgauge.models import cnn, mlp
from support.references import gradients as reference

T, B, CLASSES = 5, 3, 3


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.head(self.body(self.embed(x)).mean(1))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 3, batch_first=True)
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x):
        return self.head(self.norm(x + self.attention(x, x, x, need_weights=False)[0]).sum(1))


class Gated(nn.Module):
    """A scalar parameter, a frozen one, an unused one, and tied weights."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.7))
        self.frozen = nn.Parameter(torch.tensor([0.1, 0.2, 0.3, 0.4]), requires_grad=False)
        self.unused = nn.Parameter(torch.ones(2, 3))
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.scale * torch.tanh(self.second(torch.tanh(self.first(x + self.frozen))))


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, CLASSES)

    def forward(self, x):
        return self.layer(x * x if x.abs().max() < 100 else x)


class Counting(nn.Module):
    """Writes a buffer in place, replaces another, and keeps its last output."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, CLASSES)
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(4))
        self.last = None

    def forward(self, x):
        self.seen += 1
        self.mean = 0.5 * self.mean + 0.5 * x.detach().mean(0)
        self.last = self.layer(x + self.mean).detach()
        return self.layer(x + self.mean)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTM(3, 5, batch_first=True)
        self.head = nn.Linear(5, CLASSES)

    def forward(self, x):
        return self.head(self.cell(x)[0][:, -1])


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def image(*shape):
    return lambda n: torch.randn(n, *shape, generator=generator(1), dtype=torch.float64)


def tokens(n):
    return torch.randint(0, 11, (n, 4), generator=generator(1))


def convolutions():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, stride=2, padding=1),
        nn.Tanh(),
        nn.Conv2d(4, 6, (3, 2), padding="same", dilation=(1, 2), groups=2, bias=False),
        nn.Tanh(),
        nn.Conv2d(6, 4, 2, padding=1, padding_mode="reflect", dilation=2),
        nn.Tanh(),
        nn.Conv2d(4, 4, 2, padding="valid", groups=4),
        nn.Flatten(),
        nn.LazyLinear(CLASSES),
    )


def normalised():
    return nn.Sequential(
        nn.Conv1d(2, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.LayerNorm(16),
        nn.Linear(16, CLASSES),
    )  # fmt: skip


def batchnorm():
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 3))
    model[1].running_mean.uniform_(-1, 1, generator=generator())
    return model.eval()


MODELS = {
    "mlp": (lambda: mlp(4, CLASSES, (5, 6), generator=generator()), image(4)),
    "cnn": (lambda: cnn(1, CLASSES, 8, generator=generator()), image(1, 8, 8)),
    "convolutions": (convolutions, image(2, 7, 6)),
    "transformer": (Transformer, tokens),
    "transformer eval": (lambda: Transformer().eval(), tokens),
    "attention": (Attention, image(4, 6)),
    "norms": (normalised, image(2, 6)),
    "batchnorm eval": (batchnorm, image(2, 4, 4)),
    "scalar, frozen, unused, tied": (Gated, image(4)),
    "branch on data": (Branching, image(4)),
    "recurrent": (Recurrent, image(4, 3)),
}
VECTORISED = [name for name in MODELS if name not in ("branch on data", "recurrent")]


def made(name, n=T * B):
    """A task in float64, parameters that differ from the model's, and n records."""
    build, records = MODELS[name]
    x = records(n)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build()
        model = model.double()
        model(x[:2])
    params = {k: v + 0.1 for k, v in params_of(model).items()}
    return Task(model, F.cross_entropy), params, x, torch.arange(n) % CLASSES


def batched(x, *lead):
    return x.unflatten(0, lead)


def assert_same(found, wanted, tolerance=1e-12):
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=tolerance)


@cache
def of_batches(name):
    """Return the gradients of T batches by the autograd loop."""
    task, params, x, y = made(name)
    return reference.loop(task, params, batched(x, T, B), batched(y, T, B))


@pytest.mark.parametrize(
    ("name", "method"),
    [(name, method) for name in MODELS for method in ("auto", "loop")]
    + [(name, "vmap") for name in VECTORISED],
)
def test_batches_equal_the_autograd_loop(name, method):
    task, params, x, y = made(name)
    x, y = batched(x, T, B), batched(y, T, B)
    found = batch_gradients(task, params, x, y, method=method)
    assert_same(found, of_batches(name))


@pytest.mark.parametrize("name", MODELS)
def test_examples_equal_the_autograd_loop(name):
    task, params, x, y = made(name, 4)
    found = per_example_gradients(task, params, x, y)
    assert_same(found, reference.loop(task, params, x[:, None], y[:, None]))


def test_a_model_that_views_its_convolution_is_taken():
    """``view`` refuses images whose channels are innermost, as the fast loop stores them."""

    class Viewing(nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution = nn.Conv2d(2, 3, 3)
            self.head = nn.Linear(3 * 4 * 4, CLASSES)

        def forward(self, x):
            return self.head(self.convolution(x).view(len(x), -1))

    with torch.random.fork_rng():
        task = Task(Viewing().double(), F.cross_entropy)
    x, y = batched(image(2, 6, 6)(18), 2, 9), (torch.arange(18) % CLASSES).view(2, 9)
    params = params_of(task.model)
    found = batch_gradients(task, params, x, y, method="loop")
    assert_same(found, reference.loop(task, params, x, y))


@pytest.mark.parametrize("name", VECTORISED)
def test_auto_vectorises(name):
    task, params, x, y = made(name, 4)
    assert probing.probe(task, params, x, y, method="auto").vectorises()


REPEATED = torch.tensor([[0, 1, 2, 3], [4, 4, 4, 4], [5, 0, 5, 6], [6, 6, 1, 1]])


@cache
def of_repeated_rows(name):
    """Return the gradients of batches of ``REPEATED`` by the autograd loop."""
    task, params, x, y = made(name, 7)
    return reference.loop(task, params, x[REPEATED], y[REPEATED])


@pytest.mark.parametrize("pooled", [None, True, False])
@pytest.mark.parametrize("name", MODELS)
def test_pooled_equals_direct_with_repeated_rows(name, pooled):
    found = pooled_batch_gradients(*made(name, 7), REPEATED, pooled=pooled)
    assert_same(found, of_repeated_rows(name))


@pytest.mark.parametrize("method", ["auto", "vmap", "loop"])
@pytest.mark.parametrize("name", ["mlp", "cnn", "transformer", "scalar, frozen, unused, tied"])
def test_local_updates_equal_sgd(name, method):
    task, params, x, y = made(name, 2 * 3 * 2)
    x, y = batched(x, 2, 3, 2), batched(y, 2, 3, 2)
    found = local_updates(task, params, x, y, lr=0.3, method=method)
    assert_same(found, reference.clients(task, params, x, y, 0.3))


def test_one_local_step_is_minus_the_learning_rate_times_the_gradient():
    task, params, x, y = made("mlp")
    x, y = batched(x, T, B), batched(y, T, B)
    step = local_updates(task, params, x[:, None], y[:, None], lr=0.5)
    assert_same(step, {k: -0.5 * v for k, v in batch_gradients(task, params, x, y).items()})


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("name", ["mlp", "cnn", "transformer", "branch on data"])
def test_chunk_size_does_not_matter(name, pooled):
    task, params, x, y = made(name, 9)
    rows = torch.randint(0, 9, (10, 4), generator=generator())
    each = sum(value.numel() * 8 for value in params.values())
    wanted = pooled_batch_gradients(task, params, x, y, rows, pooled=pooled)
    for max_bytes in (1, 13 * each, 20 * each):
        chunks = list(
            iter_batch_gradients(task, params, x, y, rows, pooled=pooled, max_bytes=max_bytes)
        )
        size = max(1, max_bytes // 4 // each)
        assert [c.start for c, _ in chunks] == list(range(0, 10, size))
        assert [c.stop for c, _ in chunks] == [min(s + size, 10) for s in range(0, 10, size)]
        joined = {k: torch.cat([grads[k] for _, grads in chunks]) for k in params}
        assert_same(joined, wanted)


def test_blocks_of_batches_and_clients_do_not_matter():
    task, params, x, y = made("mlp", 24)
    batches = batched(x, 6, 4), batched(y, 6, 4)
    clients = batched(x, 6, 2, 2), batched(y, 6, 2, 2)
    for max_bytes in (1, 3000, 2**20):
        assert_same(
            batch_gradients(task, params, *batches, max_bytes=max_bytes),
            batch_gradients(task, params, *batches),
        )
        assert_same(
            local_updates(task, params, *clients, lr=1.0, max_bytes=max_bytes),
            local_updates(task, params, *clients, lr=1.0),
        )


def test_a_block_stays_within_the_memory(monkeypatch):
    task, params, x, y = made("mlp", 64)
    sizes = []

    def spy(function, **axes):
        return lambda params, x, y: sizes.append(len(x)) or inner(function, **axes)(params, x, y)

    inner = batching.vmap
    monkeypatch.setattr(batching, "vmap", spy)
    each = sum(value.numel() * 8 for value in params.values())
    batch_gradients(task, params, x[:, None], y[:, None], max_bytes=20 * each)
    assert max(sizes) * each <= 10 * each
    assert sum(sizes) == 64


def test_a_plan_counts_the_activations_and_not_the_storage_behind_a_view():
    task, params, x, y = made("mlp", 1000)
    plan = probing.probe(task, params, x[:3], y[:3], method="auto")
    inputs, hidden = 4 * 8, (5 + 6) * 8
    assert inputs + hidden <= plan.bytes_per_record <= 3 * (inputs + hidden)
    assert plan.flops_per_record == 2 * (4 * 5 + 5 * 6 + 6 * CLASSES)


def test_pool_is_held_once_and_shared(monkeypatch):
    task, params, x, y = made("mlp", 8)
    rows = torch.randint(0, 8, (50, 4), generator=generator())
    asked = []
    inner = batching.GradientJob.direct

    def spy(self, batches, count, batch):
        asked.append(count)
        return inner(self, batches, count, batch)

    monkeypatch.setattr(batching.GradientJob, "direct", spy)
    each = sum(value.numel() * 8 for value in params.values())
    list(iter_batch_gradients(task, params, x, y, rows, pooled=True, max_bytes=16 * each))
    # The check on one batch, of its records as memory allows; each once for all of 13 chunks.
    assert asked == [1, 4, 4, 8]


@pytest.mark.parametrize("records", [32, 256])
def test_cost_decides_what_is_pooled(records):
    task, params, x, y = made("cnn", 256)
    rows = torch.randint(0, records, (64, 16), generator=generator())
    pool = pooling.start_pool(task, params, x, y, rows, method="auto", pooled=None, max_bytes=2**28)
    assert (pool.shared is None) == (records == 32)
    linear, params, x, y = made("mlp", 256)
    pool = pooling.start_pool(
        linear, params, x, y, rows, method="auto", pooled=None, max_bytes=2**28
    )
    assert pool.shared is False


class BatchCentred(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, CLASSES)

    def forward(self, x):
        return self.layer(x - x.mean(0))


def weighted(outputs, targets):
    return F.cross_entropy(outputs, targets, weight=outputs.new_tensor([1.0, 1.0, 5.0]))


def summed(outputs, targets):
    return F.cross_entropy(outputs, targets, reduction="sum")


@pytest.mark.parametrize(
    ("model", "loss"),
    [
        (BatchCentred(), F.cross_entropy),
        (nn.BatchNorm1d(4, track_running_stats=False), F.cross_entropy),
        (nn.Linear(4, CLASSES), weighted),
        (nn.Linear(4, CLASSES), summed),
    ],
)
def test_interacting_records_are_not_pooled(model, loss):
    task = Task(model.double(), loss)
    params = params_of(model)
    x, y = image(4)(40), torch.arange(40) % CLASSES
    rows = torch.randint(0, 40, (3, 5), generator=generator())
    pool = pooling.start_pool(
        task, params, x, y, rows, method="auto", pooled=False, max_bytes=2**28
    )
    assert pool.interact()
    found = pooled_batch_gradients(task, params, x, y, rows)
    assert_same(found, reference.loop(task, params, x[rows], y[rows]))
    with pytest.raises(InputError, match="records interact"):
        pooled_batch_gradients(task, params, x, y, rows, pooled=True)


@pytest.mark.parametrize("counts", [(300, 10, 290), (5,) * 40])
def test_one_weighted_class_among_many_is_found(counts):
    """Records of a rare class hardly ever meet by chance."""
    y = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    x, rows = image(4)(len(y)), torch.randperm(len(y), generator=generator()).view(-1, 8)
    for weighted_class in range(len(counts)):
        weight = torch.ones(len(counts), dtype=torch.float64)
        weight[weighted_class] = 5.0
        model = nn.Linear(4, len(counts)).double()
        pool = pooling.start_pool(
            Task(model, nn.CrossEntropyLoss(weight=weight)),
            params_of(model),
            x,
            y,
            rows,
            method="auto",
            pooled=False,
            max_bytes=2**28,
        )
        assert pool.interact()


def test_a_frozen_kernel_keeps_its_layout():
    """The fast loop stores a copy with innermost channels; the caller's numbers stay in order."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 2))
    model[0].weight.requires_grad_(False)
    x, y = torch.randn(6, 8, 3, 8, 8, generator=generator()), torch.zeros(6, 8, dtype=torch.int64)
    batch_gradients(Task(model, F.cross_entropy), params_of(model), x, y)
    assert model[0].weight.is_contiguous()


@pytest.mark.parametrize("name", ["mlp", "convolutions", "transformer"])
def test_finite_differences(name):
    task, params, x, y = made(name, 4)
    directions = {
        k: torch.randn(v.shape, generator=generator(2), dtype=v.dtype) for k, v in params.items()
    }

    def loss_at(step):
        moved = {k: v + step * directions[k] for k, v in params.items()}
        return task.loss(torch.func.functional_call(task.model, moved, (x,)), y)

    step = 1e-5
    slope = (loss_at(step) - loss_at(-step)) / (2 * step)
    grads = batch_gradients(task, params, x[None], y[None])
    found = sum((grads[k][0] * directions[k]).sum() for k in params)
    assert abs(float(found - slope)) < 1e-8


@settings(max_examples=12, deadline=None)
@given(
    trials=st.integers(1, 4),
    batch=st.integers(1, 9),
    channels=st.integers(1, 3),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 2),
    padding=st.integers(0, 2),
    dilation=st.integers(1, 2),
    pool=st.integers(1, 6),
    max_bytes=st.sampled_from([1, 5_000, 2**28]),
)
def test_drawn_shapes(trials, batch, channels, kernel, stride, padding, dilation, pool, max_bytes):
    torch.manual_seed(0)
    layer = nn.Conv2d(channels, 2 * channels, kernel, stride, padding, dilation, groups=channels)
    model = nn.Sequential(layer, nn.AdaptiveAvgPool2d(1), nn.Flatten()).double()
    task, params = Task(model, F.cross_entropy), params_of(model)
    x = image(channels, 5, 6)(pool)
    y = torch.zeros(pool, dtype=torch.int64)
    rows = torch.randint(0, pool, (trials, batch), generator=generator())
    wanted = reference.loop(task, params, x[rows], y[rows])
    for pooled in (None, True, False):
        assert_same(
            pooled_batch_gradients(task, params, x, y, rows, pooled=pooled, max_bytes=max_bytes),
            wanted,
        )


def state(model):
    """Everything in a module that a caller could see change."""
    return {
        "training": [module.training for module in model.modules()],
        "grad": [value.grad for value in model.parameters()],
        "requires_grad": [value.requires_grad for value in model.parameters()],
        "identity": [id(value) for value in [*model.parameters(), *model.buffers()]],
        "versions": [value._version for value in [*model.parameters(), *model.buffers()]],
        "hooks": [len(module._forward_hooks) for module in model.modules()],
        "last": getattr(model, "last", None),
    }


def fails(outputs, targets):
    raise RuntimeError("not today\nsecond line")


@pytest.mark.parametrize("loss", [F.cross_entropy, fails])
@pytest.mark.parametrize("method", ["auto", "vmap", "loop"])
@pytest.mark.parametrize(
    "model",
    [
        mlp(4, CLASSES, generator=generator()),
        Counting(),
        nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3)),
        nn.Sequential(nn.Dropout(), nn.Linear(4, 3)),
        Branching(),
    ],
)
def test_the_model_and_the_global_randomness_stay_as_they_are(model, method, loss):
    x, y = image(4)(12).float(), torch.arange(12) % CLASSES
    rows = torch.arange(12).view(4, 3)
    before, weights = state(model), copy.deepcopy(model.state_dict())
    seed = torch.get_rng_state()
    torch.backends.mha.set_fastpath_enabled(True)
    for call in (
        lambda task, p: batch_gradients(task, p, x[rows], y[rows], method=method),
        lambda task, p: pooled_batch_gradients(task, p, x, y, rows, method=method),
        lambda task, p: local_updates(task, p, x[rows][None], y[rows][None], lr=1, method=method),
    ):
        with contextlib.suppress(InputError):
            call(Task(model, loss), params_of(model))
        assert state(model) == before
        for name, value in model.state_dict().items():
            assert torch.equal(value, weights[name])
    assert torch.equal(torch.get_rng_state(), seed)
    assert torch.backends.mha.get_fastpath_enabled()


X, Y = torch.randn(4, 4, generator=generator()), torch.tensor([2, 1, 0, 0])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), r"BatchNorm1d .*eval\(\).*GroupNorm"),
        (nn.Sequential(nn.Dropout(0.3), nn.Linear(4, 3)), r"random.*Dropout.*model\.eval\(\)"),
        (Counting(), "Counting writes its buffer 'seen'.*outside of forward"),
        (nn.Linear(5, 3), r"Linear refuses inputs .* float32: "),
        (
            nn.Linear(4, 1),
            r"loss fails for a label that is not among the outputs \[1\] of a record",
        ),
        (nn.Flatten(), "no trainable parameters"),
    ],
)
def test_refusals(model, message):
    for call in (
        lambda: check_vectorisable(Task(model, F.cross_entropy), X, Y),
        lambda: per_example_gradients(Task(model, F.cross_entropy), params_of(model), X, Y),
        lambda: batch_gradients(Task(model, F.cross_entropy), params_of(model), X[None], Y[None]),
        lambda: iter_batch_gradients(
            Task(model, F.cross_entropy), params_of(model), X, Y, torch.tensor([[0, 1]])
        ),
    ):
        with pytest.raises(InputError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("method", ["vmap", "loop"])
def test_a_late_label_without_an_output_is_named(method):
    task = Task(nn.Linear(4, 3), F.cross_entropy)
    with pytest.raises(InputError, match=r"a label that is not among the outputs \[3\]"):
        per_example_gradients(task, params_of(task.model), X, Y.flip(0) + 1, method=method)


@pytest.mark.parametrize("model", [Branching(), Recurrent()])
def test_vmap_alone_refuses_what_the_loop_takes(model):
    x = image(4)(2).float() if isinstance(model, Branching) else image(4, 3)(2).float()
    task, params, y = Task(model, F.cross_entropy), params_of(model), torch.tensor([0, 1])
    with pytest.raises(InputError, match=r'method="auto"') as caught:
        batch_gradients(task, params, x[None], y[None], method="vmap")
    assert "\n" not in str(caught.value)


def test_the_loop_takes_batch_statistics():
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).double()
    task, params = Task(model, F.cross_entropy), params_of(model)
    x, y = image(4)(12), torch.arange(12) % CLASSES
    rows = torch.arange(12).view(3, 4)
    found = pooled_batch_gradients(task, params, x, y, rows, method="loop")
    assert_same(found, reference.loop(task, params, x[rows], y[rows]))
    clients = x[rows].view(3, 2, 2, 4), y[rows].view(3, 2, 2)
    assert_same(
        local_updates(task, params, *clients, lr=0.1, method="loop"),
        reference.clients(task, params, *clients, 0.1),
        1e-10,
    )


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda o, t: (o - t[:, None]).square(), r"\[2, 3\].*expected a scalar"),
        (lambda o, t: o.argmax(1).sum(), "expected a scalar"),
        (lambda o, t: o.detach().sum(), "does not depend on any trainable parameter"),
        (lambda o, t: 1.0, "the loss returns float"),
    ],
)
def test_losses_that_are_refused(loss, message):
    with pytest.raises(InputError, match=message):
        check_vectorisable(Task(nn.Linear(4, 3), loss), X, Y)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weigth": torch.zeros(3, 4)}, "'weigth' is not trainable here; did you mean 'weight'?"),
        ({"weight": torch.zeros(4, 3)}, r"'weight' is \[4, 3\]; expected \[3, 4\]"),
    ],
)
def test_parameters_that_are_refused(change, message):
    task = Task(nn.Linear(4, 3), F.cross_entropy)
    with pytest.raises(InputError, match=message):
        per_example_gradients(task, params_of(task.model) | change, X, Y)
    with pytest.raises(InputError, match="'bias' is missing"):
        per_example_gradients(task, {"weight": torch.zeros(3, 4)}, X, Y)


def test_shapes_rows_and_settings_that_are_refused():
    task = Task(nn.Linear(4, 3), F.cross_entropy)
    p = params_of(task.model)
    rows = torch.tensor([[0, 1]])
    for call, message in (
        (lambda: batch_gradients(task, p, X[:0], Y[:0]), r"x is \[0, 4\]; expected \[T, B, ...\]"),
        (lambda: batch_gradients(task, p, X[None], Y), r"y is \[4\]; expected \[T, B, ...\]"),
        (lambda: iter_batch_gradients(task, p, X, Y, rows + 3), "rows hold 4; .* 0 to 3"),
        (lambda: iter_batch_gradients(task, p, X, Y, rows - 1), "rows hold -1"),
        (lambda: iter_batch_gradients(task, p, X, Y, rows[0]), r"expected \[T, B\] torch.int64"),
        (lambda: iter_batch_gradients(task, p, X, Y, rows.float()), "torch.float32; expected"),
        (lambda: batch_gradients(task, p, X[None], Y[None], method="fast"), "method is 'fast'"),
        (lambda: batch_gradients(task, p, X[None], Y[None], max_bytes=0), "max_bytes is 0"),
        (lambda: local_updates(task, p, X[None, None], Y[None, None], lr=0.0), "lr is 0"),
    ):
        with pytest.raises(InputError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)


def test_no_warning_reaches_the_caller_and_no_gradient_is_kept():
    task, params, x, y = made("transformer")
    leaves = {k: v.requires_grad_() for k, v in params.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = batch_gradients(task, leaves, batched(x, T, B), batched(y, T, B))
    assert not any(value.requires_grad for value in found.values())
    assert all(value.grad is None for value in leaves.values())


def test_gradients_are_found_under_no_grad():
    task, params, x, y = made("cnn")
    wanted = batch_gradients(task, params, batched(x, T, B), batched(y, T, B))
    for method in ("vmap", "loop"):
        with torch.no_grad():
            found = batch_gradients(task, params, batched(x, T, B), batched(y, T, B), method=method)
        assert_same(found, wanted)


def test_params_are_clones_of_the_trainable_ones():
    model = Gated()
    params = params_of(model)
    assert list(params) == [
        "scale", "unused", "first.weight", "first.bias", "second.bias",
    ]  # fmt: skip
    params["unused"].zero_()
    assert model.unused.sum() == 6


@pytest.mark.parametrize(
    ("ours", "torchs"),
    [
        (
            lambda g: mlp(400, 50, (300,), generator=g),
            lambda: nn.Sequential(nn.Linear(400, 300), nn.ReLU(), nn.Linear(300, 50)),
        ),
        (
            lambda g: cnn(3, 10, 8, generator=g),
            lambda: nn.Sequential(
                nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
                nn.Conv2d(32, 32, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(32, 10),
            ),
        ),
    ],
)  # fmt: skip
def test_models_start_like_torchs_from_their_own_randomness(ours, torchs):
    seed = torch.get_rng_state()
    model = ours(generator())
    assert torch.equal(torch.get_rng_state(), seed)
    again, other = ours(generator()), ours(generator(1))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        wanted = torchs()
    assert list(model.state_dict()) == list(wanted.state_dict())
    for name, value in model.state_dict().items():
        theirs = wanted.state_dict()[name]
        assert value.shape == theirs.shape
        assert value.requires_grad is False
        assert torch.equal(value, again.state_dict()[name])
        assert not torch.equal(value, other.state_dict()[name])
        assert value.dtype == theirs.dtype
        if value.numel() > 400:
            assert float(value.abs().max() / theirs.abs().max()) == pytest.approx(1, abs=0.05)
            assert float(value.std() / theirs.std()) == pytest.approx(1, abs=0.1)
    assert all(value.requires_grad for value in model.parameters())


def test_small_images_are_refused():
    with pytest.raises(InputError, match="side is 4"):
        cnn(1, 2, 4, generator=generator())


def test_a_convolution_that_overruns_keeps_its_layout() -> None:
    """Innermost channels would end the process on AVX2: one point, a stride, 4 channels."""
    layouts = []

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.short = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 6, 1, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x)
            layouts.append(x.is_contiguous(memory_format=torch.channels_last))
            return self.short(x).mean((2, 3))

    task, x = Task(Net(), F.cross_entropy), torch.randn(3, 2, 3, 8, 8)
    batch_gradients(task, params_of(task.model), x, torch.tensor([[0, 1]] * 3), method="loop")
    assert layouts
    assert not any(layouts)
