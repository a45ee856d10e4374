import copy
import importlib.util
import inspect
import itertools
import math
import os
import pickle
import warnings
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestClassifier
from torch import nn

from leakgauge import defenses
from leakgauge.core.checks import InputError
from leakgauge.core.threads import one_thread
from leakgauge.core.types import Dataset, Task
from leakgauge.defenses import (
    PGD,
    Bottleneck,
    Chain,
    ClipNorm,
    GaussianNoise,
    Identity,
    PerturbTransform,
    PruneTransform,
    SignTransform,
    StochasticQuantise,
    deployed,
    on_layers,
    parse_defense,
    train_network,
    with_noise,
)
from leakgauge.defenses import transform as transform_module
from leakgauge.defenses.catalog import DEFENSES, REGISTRY
from leakgauge.defenses.vib import divergence
from leakgauge.gradients import (
    batch_gradients,
    batching,
    check_vectorisable,
    params_of,
    per_example_gradients,
    pooled_batch_gradients,
)
from leakgauge.gradients.clipping import clipped_gradient_function, iter_clipped_batch_gradients
from leakgauge.gradients.flattening import flatten
from leakgauge.models import cnn, mlp
from support import defenses as make
from support.references import defenses as reference
from support.references import gradients as reference_gradients

N = 7


@pytest.fixture(autouse=True)
def single_thread():
    with one_thread():
        yield


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def generators(n=N, first=0):
    return [generator(first + i) for i in range(n)]


def stack(n=N, dtype=torch.float64):
    """Gradients with a matrix, a vector and a scalar leaf; one is 0, and zeros are scattered."""
    rng = generator(1)
    grads = {
        "w": torch.randn(n, 4, 5, generator=rng, dtype=dtype),
        "b": torch.randn(n, 4, generator=rng, dtype=dtype) * 3,
        "s": torch.randn(n, generator=rng, dtype=dtype),
    }
    grads["w"][:, 1] = 0
    if n > 3:
        for leaf in grads.values():
            leaf[3] = 0
    return grads


def network(classes=3, features=25, seed=2):
    return mlp(features, classes, (6,), generator=generator(seed)).double()


TRANSFORMS = {
    "identity": Identity(),
    "prune": PruneTransform(0.7),
    "prune, whole": PruneTransform(0.7, whole=True),
    "prune, last layer": on_layers(PruneTransform(0.7, whole=True), "last"),
    "noise, first layer": on_layers(GaussianNoise(0.3), "first"),
    "sign": SignTransform(),
    "sign, one bit": SignTransform(one_bit=True),
    "clip": ClipNorm(2.0),
    "noise": GaussianNoise(0.3),
    "quantise": StochasticQuantise(3),
    "perturb": PerturbTransform(network()),
    "perturb, targeted": PerturbTransform(network(), PGD(0.1, 0.03, 4, targeted=True)),
    "chain": Chain((ClipNorm(2.0), GaussianNoise(0.3), StochasticQuantise(3), SignTransform())),
    "empty chain": Chain(()),
}


def assert_same(found, wanted, tolerance=1e-12):
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=tolerance)


# Transforms: what all of them promise.


@pytest.mark.parametrize("name", TRANSFORMS)
def test_rows_depend_on_themselves_alone(name, monkeypatch):
    transform, grads = TRANSFORMS[name], stack()
    whole = transform(grads, generators())
    for cuts in ([0, 1, 2, 3, 4, 5, 6, 7], [0, 2, 7], [0, 6, 7]):
        for first, last in itertools.pairwise(cuts):
            part = {key: leaf[first:last] for key, leaf in grads.items()}
            found = transform(part, generators(last - first, first))
            assert_same(found, {key: leaf[first:last] for key, leaf in whole.items()})
    order = torch.tensor([4, 0, 6, 1, 5, 2, 3])
    shuffled = transform(
        {key: leaf[order] for key, leaf in grads.items()}, [generator(int(i)) for i in order]
    )
    assert_same(shuffled, {key: leaf[order] for key, leaf in whole.items()})
    monkeypatch.setattr(transform_module, "BLOCK_BYTES", 1)
    assert_same(transform(grads, generators()), whole)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_shapes_stay_and_inputs_too(name, dtype):
    grads = stack(dtype=dtype)
    before = {key: leaf.clone() for key, leaf in grads.items()}
    state = torch.get_rng_state()
    found = TRANSFORMS[name](grads, generators())
    assert_same(grads, before, 0)
    assert torch.equal(torch.get_rng_state(), state)
    for key, leaf in grads.items():
        assert (found[key].shape, found[key].dtype) == (leaf.shape, leaf.dtype)
        assert not found[key].requires_grad
        assert bool(found[key].isfinite().all())


@pytest.mark.parametrize("name", TRANSFORMS)
def test_no_gradients_are_no_error(name):
    found = TRANSFORMS[name](stack(0), [])
    assert {key: len(leaf) for key, leaf in found.items()} == {"w": 0, "b": 0, "s": 0}


@pytest.mark.parametrize("name", ["noise", "quantise", "perturb, targeted", "chain"])
def test_a_missing_generator_is_refused(name):
    with pytest.raises(InputError, match="expected one for each"):
        TRANSFORMS[name](stack(), generators(N - 1))


# Transforms: each against its literal form.


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.9, 0.99])
def test_pruning_equals_the_sorted_list(rate):
    grads = stack()
    wanted = [reference.prune(row, rate) for row in reference.rows(grads)]
    assert reference.rows(PruneTransform(rate, whole=True)(grads, [])) == wanted
    found = PruneTransform(rate)(grads, [])
    for name, leaf in grads.items():
        alone = {name: leaf}
        wanted = [reference.prune(row, rate) for row in reference.rows(alone)]
        assert reference.rows({name: found[name]}) == wanted


def test_pruning_keeps_the_paper_s_share():
    rng = generator()
    grads = {
        "w": torch.randn(3, 10_000, generator=rng),
        "b": torch.randn(3, 2, generator=rng) / 1e6,
    }
    kept = {
        name: leaf.count_nonzero(dim=1).tolist()
        for name, leaf in PruneTransform()(grads, []).items()
    }
    assert kept["w"] == [100, 100, 100]
    assert kept["b"] == [1, 1, 1]
    assert flatten(PruneTransform(whole=True)(grads, [])).count_nonzero(dim=1).tolist() == [
        100,
        100,
        100,
    ]
    assert not PruneTransform(whole=True)(grads, [])["b"].any()


def test_pruning_keeps_as_many_of_equal_coordinates_as_fit():
    kept = PruneTransform(0.9)({"w": torch.full((2, 50), -1.0)}, [])["w"]
    assert kept.count_nonzero(dim=1).tolist() == [5, 5]


def test_sign_and_clip_equal_their_loops():
    grads = stack()
    rows = reference.rows(grads)
    signs = [reference.sign(row) for row in rows]
    assert reference.rows(SignTransform()(grads, [])) == signs
    assert any(0 in row for row in signs)
    one_bit = [[1 if value == 0 else value for value in row] for row in signs]
    assert reference.rows(SignTransform(one_bit=True)(grads, [])) == one_bit
    assert parse_defense("sign:one_bit=1", batch_size=1).update == SignTransform(one_bit=True)
    clipped = torch.tensor(reference.rows(ClipNorm(2.0)(grads, [])))
    torch.testing.assert_close(clipped, torch.tensor([reference.clip(row, 2.0) for row in rows]))
    assert float(flatten(ClipNorm(2.0)(grads, [])).norm(dim=1).max()) <= 2.0 + 1e-12


def test_long_gradients_in_single_precision_are_clipped_to_the_norm():
    """Torch's own norm of so many numbers is 2e-4 too small, which would leave them too long."""
    long = {"w": torch.randn(2, 3_000_001, generator=generator())}
    clipped = ClipNorm(1.0)(long, generators(2))["w"].double()
    torch.testing.assert_close(clipped.norm(dim=1), torch.ones(2).double(), rtol=2e-6, atol=0)


def test_clipping_leaves_short_gradients_as_they_are():
    assert_same(ClipNorm(1e6)(stack(), []), stack(), 0)


def test_noise_has_the_stated_deviation_and_no_memory():
    grads = {"w": torch.zeros(4, 100, 200), "b": torch.zeros(4, 20_000)}
    noise = GaussianNoise(0.25)(grads, generators(4))
    flat = torch.cat([noise["w"].flatten(1), noise["b"]]).double()
    # The deviation of n normal numbers has standard error std / sqrt(2 n); the mean, std / sqrt n.
    torch.testing.assert_close(flat.std(dim=1), torch.full((8,), 0.25).double(), rtol=0, atol=0.006)
    assert float(flat.mean(dim=1).abs().max()) < 0.009
    alike = torch.corrcoef(flat).fill_diagonal_(0).abs().max()
    assert float(alike) < 0.035
    again = GaussianNoise(0.25)(grads, generators(4))
    assert_same(again, noise, 0)


def test_no_noise_draws_nothing():
    assert_same(GaussianNoise(0.0)(stack(), []), stack(), 0)


@pytest.mark.parametrize("levels", [1, 3, 16])
def test_quantisation_is_right_on_average(levels):
    n = 5_000
    one = {"w": torch.tensor([[0.3, -1.2], [0.0, 2.0]]).double(), "b": torch.tensor([-0.01])}
    many = {key: leaf.double().expand(n, *leaf.shape) for key, leaf in one.items()}
    found = flatten(StochasticQuantise(levels)(many, generators(n)))
    wanted = flatten({key: leaf[:1] for key, leaf in many.items()})[0]
    norm = wanted.norm()
    units = found / norm * levels
    torch.testing.assert_close(units, units.round(), rtol=0, atol=1e-9)
    size = (wanted.abs() / norm) * levels
    part = size - size.floor()
    error = norm / levels * (part * (1 - part) / n).sqrt()
    assert bool(((found.mean(dim=0) - wanted).abs() <= 5 * error + 1e-12).all())
    assert bool((found * wanted >= 0).all())
    assert bool((units.abs() >= size.floor() - 1e-9).all())
    assert bool((units.abs() <= size.ceil() + 1e-9).all())


# Perturbation.


@pytest.mark.parametrize("targeted", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_pgd_equals_its_loop_over_the_cross_entropy(classes, targeted):
    net, features = network(classes), flatten(stack(20))
    label = torch.arange(20) % classes
    chosen = {"gamma": 0.05, "alpha": 0.02, "steps": 5, "targeted": targeted}
    found = PGD(**chosen)(net, features, label)
    torch.testing.assert_close(
        found, reference.pgd(net, features, label, **chosen), rtol=0, atol=1e-12
    )


def test_pgd_stays_in_its_ball_and_misleads():
    net, grads = network(), stack(40)
    label = net(flatten(grads)).argmax(dim=1)
    for gamma, steps in ((0.005, 5), (0.003, 1), (0.5, 50)):
        found = PerturbTransform(net, PGD(gamma, 0.002, steps))(grads, [])
        change = (flatten(found) - flatten(grads)).abs().amax(dim=1)
        reach = min(gamma, 0.002 * steps)
        assert float(change.max()) == pytest.approx(reach)
        assert float(change.min()) > 0
        before, after = (
            net(flatten(some)).softmax(dim=1).gather(1, label[:, None]) for some in (grads, found)
        )
        assert bool((after < before).all())


def test_pgd_moves_a_network_that_is_quite_sure():
    net = network(2)
    with torch.no_grad():
        net[-1].weight.mul_(1e9)
    features = flatten(stack())
    label = net(features).argmax(dim=1)
    loss = F.cross_entropy(net(features.requires_grad_()), label)
    assert float(torch.autograd.grad(loss, features)[0].abs().max()) == 0  # the literal form stalls
    found = PGD(1.0, 0.3, 10)(net, features.detach(), label)
    assert bool((net(found).argmax(dim=1) != label).any())


def test_targets_are_drawn_among_the_other_labels():
    net, n = network(3), 600
    grads = {key: leaf[:1].expand(n, *leaf.shape[1:]) for key, leaf in stack().items()}
    found = PerturbTransform(net, PGD(3.0, 0.5, 30, targeted=True))(grads, generators(n))
    predicted = int(net(flatten(grads))[0].argmax())
    reached = net(flatten(found)).argmax(dim=1).bincount(minlength=3).tolist()
    assert reached[predicted] == 0
    assert all(200 < count < 400 for label, count in enumerate(reached) if label != predicted)


@pytest.mark.parametrize("targeted", [False, True])
def test_who_knows_the_secret_moves_away_from_it(targeted, monkeypatch):
    net, grads = network(2), stack(40)
    secret = torch.arange(40) // 3 % 2
    plain = defenses.Defense("x", update=PerturbTransform(net, PGD(targeted=targeted)))
    told = plain.knowing(secret)
    wanted = PGD()(net, flatten(grads), secret)
    torch.testing.assert_close(flatten(told.update(grads, generators(40))), wanted)
    monkeypatch.setattr(transform_module, "BLOCK_BYTES", 1)
    torch.testing.assert_close(flatten(told.update(grads, generators(40))), wanted)
    chained = defenses.Defense("x", update=Chain((SignTransform(), plain.update))).knowing(secret)
    assert chained.update.transforms[1].secret is secret
    assert make.prune().knowing(secret) == make.prune()
    with pytest.raises(InputError, match="39 gradients came with 40 secrets"):
        told.update(stack(39), generators(39))


def planted(n=400, width=30, shift=5.0):
    rng = generator(5)
    secret = torch.arange(n) % 2
    features = torch.randn(n, width, generator=rng)
    features[:, 0] += shift * secret
    features[:, 1] = 7.0  # constant, as the gradient of a dead unit
    scale = torch.logspace(-4, 2, width)
    return features * scale, secret


def test_a_network_learns_what_is_planted_whatever_the_scales():
    features, secret = planted()
    state = torch.get_rng_state()
    net = train_network(features[:300], secret[:300], classes=2, generator=generator(), epochs=40)
    assert torch.equal(torch.get_rng_state(), state)
    right = (net(features[300:].double()).argmax(dim=1) == secret[300:]).double().mean()
    assert float(right) > 0.85
    assert not any(value.requires_grad for value in net.parameters())


def test_a_network_depends_on_its_generator_alone():
    features, secret = planted()
    before = features.clone()

    def logits(seed):
        net = train_network(features, secret, classes=2, generator=generator(seed), epochs=2)
        return net(features.double())

    assert torch.equal(logits(3), logits(3))
    assert not torch.equal(logits(3), logits(4))
    assert torch.equal(features, before)


def test_a_perturbation_blinds_the_network_that_it_was_made_for():
    secret = torch.arange(400) % 2
    features = torch.randn(400, 40, generator=generator()) * 0.006
    features[:, :20] += 0.0054 * secret[:, None]
    defense = make.perturb().learned(features, secret, classes=2, generator=generator(1))
    net = defense.update.network
    found = defense.update({"w": features}, [])["w"]
    clean, misled = (
        (net(some.double()).argmax(dim=1) == secret).double().mean() for some in (features, found)
    )
    assert float(clean) > 0.9
    assert float(misled) < 0.2
    told = defense.knowing(secret).update({"w": features}, [])["w"]
    assert float((net(told.double()).argmax(dim=1) == secret).double().mean()) < 0.1
    assert float((found - features).abs().max()) <= 0.005 + 1e-8
    # A constant coordinate carries nothing; it is left alone.
    features[:, 3] = 0.02
    defense = make.perturb().learned(features, secret, classes=2, generator=generator(1))
    assert torch.equal(defense.update({"w": features}, [])["w"][:, 3], features[:, 3])


def test_a_perturbation_that_pools_misleads_whoever_pools():
    """A forest on the maxima of clean gradients, which is not the network it was made for."""
    secret = torch.arange(600) % 2
    features = torch.randn(600, 90, generator=generator()) * 0.002
    features[:, ::3] += 0.004 * secret[:, None]
    maxima = F.max_pool1d(features[:, None], 3)[:, 0]
    forest = RandomForestClassifier(100, random_state=0).fit(maxima[:300], secret[:300])
    assert forest.score(maxima[300:], secret[300:]) > 0.95
    learnt = make.perturb(pool=3).learned(features, secret, classes=2, generator=generator(1))
    sent = learnt.knowing(secret).update({"w": features}, [])["w"]
    assert float((sent - features).abs().max()) <= 0.005 + 1e-8
    assert forest.score(F.max_pool1d(sent[:, None], 3)[300:, 0], secret[300:]) < 0.05
    # No window's order matters, nor is its last one left out.
    net = train_network(features[:, :89], secret, classes=2, generator=generator(), pool=3)
    seen = features[:, :89].double()
    turned = seen[:, [1, 2, 0, *range(3, 89)]]
    torch.testing.assert_close(net(turned), net(seen))
    last = torch.cat([seen[:, :88], seen[:, 88:] + 1], dim=1)
    assert not torch.equal(net(last), net(seen))


# The bottleneck.


def coded(build=lambda: mlp(6, 3, (5,), generator=generator()), shape=(6,), beta=0.05):
    plain = Task(build().double(), F.cross_entropy)
    task = Bottleneck(beta)(plain, shape=shape, generator=generator(1))
    x = torch.randn(8, *shape, generator=generator(2), dtype=torch.float64)
    return plain, task, x, torch.arange(8) % 3


CODED = {
    "mlp": {},
    "cnn": {"build": lambda: cnn(1, 3, 8, generator=generator()), "shape": (1, 8, 8)},
    "linear": {"build": lambda: nn.Sequential(nn.Linear(6, 3))},
}


def test_divergence_equals_torch_distributions():
    mean, log_variance = torch.randn(2, 9, 4, generator=generator(), dtype=torch.float64)
    code = torch.distributions.Normal(mean, (0.5 * log_variance).exp())
    wanted = torch.distributions.kl_divergence(code, torch.distributions.Normal(0.0, 1.0))
    torch.testing.assert_close(divergence(mean, log_variance), wanted.sum(dim=1))


@pytest.mark.parametrize("kind", CODED)
def test_the_bottleneck_equals_its_literal_form(kind):
    plain, task, x, y = coded(**CODED[kind])
    noisy = with_noise(task, x, generator=generator(3))
    noise = noisy[:, x[0].numel() :]
    assert torch.equal(noisy[:, : x[0].numel()], x.flatten(1))
    wanted = reference.coded_loss(plain, task.model, x, y, noise, 0.05)
    torch.testing.assert_close(task.loss(task.model(noisy), y), wanted)


@pytest.mark.parametrize("kind", CODED)
def test_the_bottleneck_vectorises(kind):
    _, task, x, y = coded(**CODED[kind])
    x, params = with_noise(task, x, generator=generator(3)), params_of(task.model)
    check_vectorisable(task, x, y)
    wanted = reference_gradients.loop(task, params, x[:, None], y[:, None])
    assert_same(per_example_gradients(task, params, x, y, method="vmap"), wanted)
    batches = x.unflatten(0, (2, 4)), y.unflatten(0, (2, 4))
    wanted = reference_gradients.loop(task, params, *batches)
    assert_same(batch_gradients(task, params, *batches, method="vmap"), wanted)
    rows = torch.arange(8).unflatten(0, (2, 4))
    assert_same(pooled_batch_gradients(task, params, x, y, rows, pooled=True), wanted)


@pytest.mark.parametrize("kind", CODED)
def test_the_deployed_task_takes_plain_records(kind):
    _, task, x, y = coded(**CODED[kind])
    plain = deployed(task)
    silent = torch.cat([x.flatten(1), x.new_zeros(8, task.model.width)], dim=1)
    torch.testing.assert_close(plain.model(x), task.model(silent)[:, :-1])
    assert list(params_of(plain.model)) == list(params_of(task.model))
    assert task.model.noisy
    assert plain.loss(plain.model(x), y).dim() == 0
    assert deployed(plain) is plain


def test_the_bottleneck_leaves_the_caller_s_model_alone():
    plain, task, _, _ = coded()
    before = copy.deepcopy(plain.model.state_dict())
    state = torch.get_rng_state()
    again = Bottleneck()(plain, shape=(6,), generator=generator(1))
    with torch.no_grad():
        for value in task.model.parameters():
            value.add_(1.0)
    assert_same(dict(plain.model.state_dict()), before, 0)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(again.model.body[0].weight, plain.model[0].weight)


def test_noise_is_fresh_standard_normal_and_for_the_bottleneck_alone():
    plain, task, x, _ = coded()
    assert with_noise(plain, x, generator=generator()) is x
    many = x[:1].expand(20_000, 6)
    noise = with_noise(task, many, generator=generator())[:, 6:]
    assert noise.shape == (20_000, 5)
    assert float(noise.mean().abs()) < 0.02
    assert abs(float(noise.std()) - 1) < 0.02
    rng = generator()
    first, second = (with_noise(task, x, generator=rng) for _ in range(2))
    assert not torch.equal(first, second)


def test_a_coded_task_trains_as_any_other():
    from leakgauge.core.rng import stream
    from leakgauge.training import predict, train_epoch

    rng = generator(4)
    x = torch.randn(600, 6, generator=rng)
    y = (x[:, 0] > 0).long()
    plain = Task(mlp(6, 2, (16,), generator=rng), F.cross_entropy)
    task = make.vib().prepare(plain, shape=x.shape[1:], generator=rng)
    params = params_of(task.model)
    for number in range(8):
        noisy = Dataset(with_noise(task, x, generator=rng), y)
        params = train_epoch(
            task, params, noisy, lr=0.2, batch_size=16, rng=stream(0, "train", number)
        )
    right = (predict(deployed(task), params, Dataset(x, y)) == y).double().mean()
    assert float(right) > 0.9


# Clipping before the mean.


class Loud(nn.Module):
    """Branches on its data, so it goes through a loop."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x * x if x.abs().max() < 100 else x)


class Mixing(nn.Module):
    """Records interact: a batch of one sees itself alone."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x + x.square().mean(0))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.body(x).mean(1))


def branching(outputs, targets):
    loss = F.cross_entropy(outputs, targets)
    return loss if loss > 0.5 else 2 * loss


CLIPPED = {
    "mlp": (lambda: mlp(4, 3, (5,), generator=generator()), (4,), F.cross_entropy),
    "cnn": (lambda: cnn(1, 3, 8, generator=generator()), (1, 8, 8), F.cross_entropy),
    "attention": (lambda: Attention().eval(), (5, 4), F.cross_entropy),
    "loop": (Loud, (4,), F.cross_entropy),
    "interacting records": (Mixing, (4,), F.cross_entropy),
    "class weights": (
        lambda: nn.Sequential(nn.Linear(4, 3)),
        (4,),
        nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 0.5]).double()),
    ),
    "branching loss": (lambda: nn.Sequential(nn.Linear(4, 3)), (4,), branching),
    "regression": (
        lambda: nn.Sequential(nn.Linear(4, 3)),
        (4,),
        lambda outputs, y: F.mse_loss(outputs.sum(1), y.to(outputs.dtype)),
    ),
}
ROWS = torch.tensor([[0, 3, 3], [7, 1, 2], [3, 0, 5], [2, 2, 2], [9, 8, 1]])


def clipped_case(kind):
    build, shape, loss = CLIPPED[kind]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build().double()
    x = torch.randn(11, *shape, generator=generator(1), dtype=torch.float64)
    x[3] *= 4
    params = {name: value + 0.1 for name, value in params_of(model).items()}
    return Task(model, loss), params, x, torch.arange(11) % 3


def joined(chunks):
    chunks = [(trials, dict(grads)) for trials, grads in chunks]
    assert [trials.start for trials, _ in chunks][1:] == [trials.stop for trials, _ in chunks][:-1]
    return {name: torch.cat([grads[name] for _, grads in chunks]) for name in chunks[0][1]}


@cache
def clipped_by_the_loop(kind):
    """Return a limit that clips some of a case's records, and its clipped batches."""
    task, params, x, y = clipped_case(kind)
    norms = flatten(per_example_gradients(task, params, x, y)).norm(dim=1)
    clip = float(norms.median())
    wanted = reference.clipped_batches(task, params, x, y, ROWS.tolist(), clip)
    return clip, wanted


@pytest.mark.parametrize("max_bytes", [1, 3000, 2**28])
@pytest.mark.parametrize("kind", CLIPPED)
def test_clipped_batches_equal_the_loop_over_records(kind, max_bytes):
    clip, wanted = clipped_by_the_loop(kind)
    found = iter_clipped_batch_gradients(*clipped_case(kind), ROWS, clip=clip, max_bytes=max_bytes)
    assert_same(joined(found), wanted)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("kind", ["mlp", "cnn", "loop", "class weights", "branching loss"])
def test_both_ways_to_the_mean_agree(kind, shared, monkeypatch):
    monkeypatch.setattr("leakgauge.gradients.clipping.pays", lambda *_: shared)
    monkeypatch.setattr("leakgauge.gradients.pooling.pays", lambda *_: shared)
    task, params, x, y = clipped_case(kind)
    found = iter_clipped_batch_gradients(task, params, x, y, ROWS, clip=1.0)
    wanted = reference.clipped_batches(task, params, x, y, ROWS.tolist(), 1.0)
    assert_same(joined(found), wanted)


@given(st.integers(1, 4), st.integers(1, 5), st.floats(1e-3, 1e3), st.integers(0, 99))
@settings(deadline=None, max_examples=15)
def test_drawn_batches_equal_the_loop(trials, batch, clip, seed):
    task, params, x, y = clipped_case("mlp")
    rows = torch.randint(0, 11, (trials, batch), generator=generator(seed))
    found = joined(iter_clipped_batch_gradients(task, params, x, y, rows, clip=clip))
    assert_same(found, reference.clipped_batches(task, params, x, y, rows.tolist(), clip))
    assert float(flatten(found).norm(dim=1).max()) <= clip * (1 + 1e-9)


@pytest.mark.parametrize("kind", ["mlp", "cnn", "loop"])
def test_a_wide_clip_is_no_clip(kind):
    task, params, x, y = clipped_case(kind)
    found = joined(iter_clipped_batch_gradients(task, params, x, y, ROWS, clip=1e9))
    assert_same(found, pooled_batch_gradients(task, params, x, y, ROWS))


@pytest.mark.parametrize("kind", CLIPPED)
def test_a_training_step_is_one_clipped_batch(kind):
    task, params, x, y = clipped_case(kind)
    before = copy.deepcopy(task.model.state_dict())
    step = clipped_gradient_function(task, params_of(task.model), x, y, clip=1.0)
    found = step(params, x[ROWS[0]], y[ROWS[0]])
    wanted = reference.clipped_batches(task, params, x, y, ROWS[:1].tolist(), 1.0)
    assert_same(found, {name: value[0] for name, value in wanted.items()})
    assert_same(dict(task.model.state_dict()), before, 0)
    assert all(value.grad is None for value in task.model.parameters())


def test_clipped_gradients_in_bounded_memory(monkeypatch):
    task, params, x, y = clipped_case("mlp")
    x, y = x.repeat(30, 1), y.repeat(30)
    rows = torch.randint(0, 330, (40, 3), generator=generator())
    each = sum(value.numel() * 8 for value in params.values())
    largest = []
    whole = batching.GradientJob.direct
    monkeypatch.setattr(
        batching.GradientJob, "direct", lambda *a: (largest.append(a[2]), whole(*a))[1]
    )
    chunks = iter_clipped_batch_gradients(task, params, x, y, rows, clip=1.0, max_bytes=8 * each)
    assert max(len(grads["0.bias"]) for _, grads in chunks) <= 2
    assert max(largest) <= 16  # of 330 records and 40 trials


def opacus_means(task, params, x, y, clip):
    """Opacus' clipped sum over one batch, divided by its size; no noise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opacus import GradSampleModule
        from opacus.optimizers import DPOptimizer

        model = copy.deepcopy(task.model)
        with torch.no_grad():
            for name, value in model.named_parameters():
                value.copy_(params[name])
        wrapped = GradSampleModule(model)
        optimizer = DPOptimizer(
            torch.optim.SGD(wrapped.parameters(), lr=1.0),
            noise_multiplier=0.0,
            max_grad_norm=clip,
            expected_batch_size=len(x),
        )
        task.loss(wrapped(x), y).backward()
        optimizer.pre_step()
        return {name: value.grad for name, value in model.named_parameters()}


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_clipped_sums_equal_opacus(kind):
    if importlib.util.find_spec("opacus") is None:
        missing = "opacus is not installed: pip install --no-deps opacus"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    task, params, x, y = clipped_case(kind)
    norms = flatten(per_example_gradients(task, params, x, y)).norm(dim=1)
    for clip in (float(norms.median()), 2.0):
        wanted = opacus_means(task, params, x, y, clip)
        whole = torch.arange(11)[None]
        found = joined(iter_clipped_batch_gradients(task, params, x, y, whole, clip=clip))
        step = clipped_gradient_function(task, params, x, y, clip=clip)(params, x, y)
        sums = {name: 11 * value for name, value in wanted.items()}
        assert_same({name: 11 * found[name][0] for name in wanted}, sums, 1e-5)
        assert_same({name: 11 * step[name] for name in wanted}, sums, 1e-5)


# Defenses, and their names.

PARSED = {
    "none": defenses.none(),
    "prune": make.prune(),
    "prune:rate=0.9": make.prune(0.9),
    "prune:rate=0.99999999": make.prune(0.99999999),
    " prune : rate = 0.9 ": make.prune(0.9),
    "sign": make.sign(),
    "perturb": make.perturb(),
    "perturb:gamma=0.01,steps=7": make.perturb(gamma=0.01, steps=7),
    "perturb:targeted=1": make.perturb(targeted=True),
    "perturb:pool=3": make.perturb(pool=3),
    "vib": make.vib(),
    "vib:beta=1e-3": make.vib(0.001),
    "dpsgd": make.dpsgd(batch_size=16),
    "dpsgd:clip=1,noise=1.5": make.dpsgd(1.0, 1.5, batch_size=16),
    "clip:l2=2": make.clip(2.0),
    "noise:std=0.1": make.gaussian(0.1),
    "quantise:levels=4": make.quantise(4),
}


@pytest.mark.parametrize("text", PARSED)
def test_a_word_names_a_defense(text):
    found = parse_defense(text, batch_size=16)
    assert found == PARSED[text]
    assert parse_defense(found.name, batch_size=16) == found
    assert pickle.loads(pickle.dumps(found)) == found


def test_defaults_are_the_paper_s():
    wanted = ["prune:rate=0.99", "perturb:gamma=0.005,alpha=0.002,steps=5", "vib:beta=0.01"]
    assert [d.name for d in (make.prune(), make.perturb(), make.vib())] == wanted
    assert make.dpsgd(batch_size=64).name == "dpsgd:clip=2,noise=0.1"


def test_dpsgd_clips_before_the_mean_and_adds_noise_after():
    defense = make.dpsgd(2.0, 0.1, batch_size=16)
    assert defense.per_example == ClipNorm(2.0)
    assert defense.update == GaussianNoise(0.1 / math.sqrt(16))
    # In Opacus' terms: multiplier * clip on the sum, so that over the batch size on the mean.
    multiplier = defenses.noise_multiplier(2.0, 0.1, 16)
    assert multiplier * 2.0 / 16 == pytest.approx(defense.update.std)
    silent = make.dpsgd(2.0, 0.0, batch_size=16)
    assert silent.per_example == make.clip(2.0).per_example
    assert_same(silent.update(stack(), []), stack(), 0)


def test_no_defense_changes_nothing():
    defense, task = defenses.none(), Task(nn.Linear(4, 3), F.cross_entropy)
    assert_same(defense.update(stack(), []), stack(), 0)
    assert defense.per_example is None
    assert defense.prepare(task, shape=(4,), generator=generator()) is task
    learned = defense.learned(
        torch.zeros(2, 3), torch.tensor([0, 1]), classes=2, generator=generator()
    )
    assert learned is defense


def test_public_names_are_real():
    assert sorted(defenses.__all__) == sorted(set(defenses.__all__))
    assert all(hasattr(defenses, name) for name in defenses.__all__)
    for name in DEFENSES:
        assert inspect.getdoc(REGISTRY.load(name)), name


def coded_refusal(model):
    return lambda: Bottleneck()(Task(model, F.cross_entropy), shape=(4,), generator=generator())


def trained(features=(6, 4), secret=(0, 1, 0, 1, 0, 1), classes=2):
    codes = torch.tensor(secret)
    return lambda: train_network(
        torch.zeros(features), codes, classes=classes, generator=generator()
    )


def named(text):
    return lambda: parse_defense(text, batch_size=16)


def clipped(clip):
    task, params, x, y = clipped_case("mlp")
    return lambda: iter_clipped_batch_gradients(task, params, x, y, ROWS, clip=clip)


REFUSALS = {
    "rate 1": (lambda: PruneTransform(1.0), "pruning rate is 1; expected 0 <= rate < 1"),
    "rate nan": (lambda: PruneTransform(math.nan), "pruning rate is nan"),
    "clip 0": (lambda: ClipNorm(0.0), "clipping norm is 0; expected a finite number above 0"),
    "clip inf": (lambda: ClipNorm(math.inf), "clipping norm is inf"),
    "noise below 0": (lambda: GaussianNoise(-1.0), "noise has standard deviation -1"),
    "levels 0": (lambda: StochasticQuantise(0), "number of quantisation levels is 0"),
    "levels 1.5": (lambda: StochasticQuantise(1.5), "number of quantisation levels is 1.5"),
    "gamma 0": (lambda: PGD(gamma=0.0), "perturbation gamma is 0; expected a number above 0"),
    "alpha nan": (lambda: PGD(alpha=math.nan), "perturbation alpha is nan"),
    "steps 0": (lambda: PGD(steps=0), "number of perturbation steps is 0"),
    "beta below 0": (lambda: Bottleneck(-0.1), "vib beta is -0.1"),
    "chain": (lambda: Chain((SignTransform(), 3)), "3 in a chain is not a transform"),
    "batch size": (lambda: make.dpsgd(batch_size=0), "dpsgd's batch size is 0"),
    "unknown secret": (
        lambda: PerturbTransform(network()).knowing(torch.full((N,), 3))(stack(), []),
        "a secret is not among the 3 that the network was trained on",
    ),
    "not learned": (lambda: make.perturb().update(stack(), []), "call Defense.learned"),
    "vib, no sequence": (coded_refusal(nn.Linear(4, 3)), "write the model as nn.Sequential"),
    "vib, no head": (coded_refusal(nn.Sequential(nn.ReLU())), "got ReLU; move what follows"),
    "vib, empty": (coded_refusal(nn.Sequential()), "got NoneType"),
    "vib, no noise": (
        lambda: coded()[1].model(torch.zeros(2, 6)),
        "append the noise by with_noise",
    ),
    "vib, shape": (
        lambda: with_noise(coded()[1], torch.zeros(2, 5), generator=generator()),
        "vib expects floating [n, 6]",
    ),
    "vib, tokens": (
        lambda: with_noise(coded()[1], torch.zeros(2, 6, dtype=torch.int64), generator=generator()),
        "vib expects floating",
    ),
    "network, features": (trained(features=(6,)), "expected floating [n, D]"),
    "network, secrets": (trained(secret=(0, 1)), "expected [6] torch.int64"),
    "network, codes": (trained(secret=(0, 1, 2, 0, 1, 2)), "expected codes from 0 to 1"),
    "network, classes": (trained(classes=1), "classes is 1; expected at least 2"),
    "clipped, clip": (clipped(0.0), "clip is 0; expected a number above 0"),
    "name": (named("prunne"), "defense 'prunne' is not known; did you mean 'prune'?"),
    "no name": (named(""), "defense '' is not known; known: 'none', 'prune'"),
    "key": (named("prune:rat=0.5"), "defense 'prune' has no setting 'rat'; did you mean 'rate'?"),
    "no keys": (named("none:rate=1"), "defense 'none' takes no settings"),
    "batch size as key": (named("dpsgd:batch_size=3"), "has no setting 'batch_size'"),
    "value": (named("prune:rate=much"), "prune: rate is 'much'; expected a number"),
    "no value": (named("prune:rate"), "prune: rate is ''; expected a number"),
    "no setting": (named("prune:"), "defense 'prune' has no setting ''"),
    "whole": (named("quantise:levels=2.5"), "levels is '2.5'; expected a whole number"),
    "flag": (named("perturb:targeted=yes"), "targeted is 'yes'; expected 0 or 1"),
    "twice": (named("vib:beta=1,beta=2"), "sets 'beta' twice"),
    "two left out": (
        named("local-dp:clip=1,epsilon=2"),
        "defense 'local-dp:clip=1,epsilon=2' does not say 'sensitivity', 'delta'; write "
        "local-dp:clip=1,epsilon=2,sensitivity=...,delta=...",
    ),
    "left out": (named("clip"), "defense 'clip' does not say 'l2'; write clip:l2=..."),
    "range": (named("prune:rate=1.5"), "pruning rate is 1.5"),
    "not a number": (named("noise:std=nan"), "noise: std is 'nan'; expected a number"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_are_one_line(case):
    act, words = REFUSALS[case]
    with pytest.raises(InputError) as caught:
        act()
    text = str(caught.value)
    assert words in text
    assert "\n" not in text
