"""Pairs at a checkpoint, against a loop over records and over batches."""

import copy
import itertools

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from leakgauge.core.checks import InputError
from leakgauge.core.types import Dataset, Task
from leakgauge.defenses import Defense
from leakgauge.gradients import params_of
from leakgauge.tokens import gathering
from leakgauge.tokens.gathering import Gathering, checkpoint_parts, fewest_records
from leakgauge.tokens.sources import FixedPairs, PairSplit, PooledPairs
from support import defenses
from support.references import defenses as literal
from support.references import gradients as plain

BATCH, WIDTH = 4, 6
COUNT = 180


class Marked(nn.Module):
    """Records carry a mark each, which data features show and the layers never see."""

    def __init__(self, count: int = COUNT, *norm: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.count = count
        self.all, self.first = nn.Identity(), nn.Linear(WIDTH, 5)
        self.norm, self.last = nn.Sequential(*norm), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        seen = self.all(x)[:, self.count :]
        return self.last(torch.tanh(self.norm(self.first(seen))))


def data(count: int = COUNT, *, users: int | None = None, seed: int = 0) -> Dataset:
    rng = np.random.default_rng(seed)
    x = np.concatenate([np.eye(count), rng.normal(size=(count, WIDTH))], axis=1)
    people = None if users is None else torch.from_numpy(rng.integers(users, size=count))
    return Dataset(torch.from_numpy(x), torch.from_numpy(rng.integers(3, size=count)), users=people)


def marked(count: int = COUNT, *norm: nn.Module, loss=functional.cross_entropy) -> Task:
    return Task(Marked(count, *norm).double(), loss)


def how(**changed) -> Gathering:
    made = {"layers": ["first", "last"], "batch_size": BATCH, "features": "all", "pairs": 60}
    return Gathering(**{**made, **changed})


def gathered(task: Task, records: Dataset, *, seed: int = 0, **changed) -> PairSplit:
    return checkpoint_parts(task, params_of(task.model), records, how(**changed), seed=seed)


def sources(parts: PairSplit):
    return parts.fitting, parts.stopping, parts.reporting


def rows_of(features: Tensor, count: int = COUNT) -> Tensor:
    """Return the records of each batch ``[T, B]``, by their marks."""
    marks = features[:, :count] > 0
    size = int(marks[0].sum())
    assert marks.sum(1).tolist() == [size] * len(marks)
    return marks.nonzero()[:, 1].reshape(len(marks), size)


def known(task: Task, records: Dataset, rows: Tensor) -> dict[str, Tensor]:
    """Return the gradients of batches by layer, one batch after the other."""
    grads = plain.loop(task, params_of(task.model), records.x[rows], records.y[rows])
    return {
        layer: torch.cat([grads[f"{layer}.{leaf}"].flatten(1) for leaf in ("weight", "bias")], 1)
        for layer in ("first", "last")
    }


def assert_known(pairs, wanted: dict[str, Tensor]) -> None:
    assert list(pairs.gradients) == list(wanted)
    for name, leaf in wanted.items():
        torch.testing.assert_close(pairs.gradients[name].double(), leaf, rtol=1e-5, atol=1e-7)


def assert_apart(groups: list[Tensor]) -> None:
    for one, other in itertools.combinations(groups, 2):
        assert not set(one.flatten().tolist()) & set(other.flatten().tolist())


def test_a_pool_keeps_the_gradient_and_the_features_of_each_record() -> None:
    task, records = marked(), data()
    pools = sources(gathered(task, records))
    assert all(isinstance(one, PooledPairs) and one.batch_size == BATCH for one in pools)
    rows = [rows_of(one.records.features) for one in pools]
    assert [len(one) for one in rows] == [108, 36, 36]
    assert_apart(rows)
    for pool, own in zip(pools, rows, strict=True):
        torch.testing.assert_close(pool.records.features.double(), records.x[own[:, 0]])
        assert_known(pool.records, known(task, records, own))
        drawn = pool.draw(5, torch.Generator().manual_seed(1))
        assert_known(drawn, known(task, records, rows_of(drawn.features)))


def test_the_default_features_are_what_the_last_layer_takes() -> None:
    task, records = marked(), data()
    shown, named = gathered(task, records).fitting, gathered(task, records, features=None).fitting
    own = rows_of(shown.records.features)[:, 0]
    with torch.no_grad():
        hidden = torch.tanh(task.model.first(records.x[own, COUNT:]))
    torch.testing.assert_close(named.records.features.double(), hidden, rtol=1e-5, atol=1e-6)


def test_no_user_is_in_two_parts() -> None:
    records = data(users=40)
    pools = sources(gathered(marked(), records))
    assert_apart([records.users[rows_of(one.records.features)] for one in pools])


NORMS = {
    "averages": lambda: nn.BatchNorm1d(5),
    "none": lambda: nn.BatchNorm1d(5, track_running_stats=False),
}


def assert_fixed(task: Task, records: Dataset, parts: PairSplit, change=lambda grads, rows: grads):
    """Each pair is that of one batch, and blocks share no record."""
    seen = []
    for part, least in zip(sources(parts), (36, 12, 12), strict=True):
        assert isinstance(part, FixedPairs)
        assert least <= len(part.pairs) < least + 8
        rows = rows_of(part.pairs.features)
        assert rows.shape[1] == BATCH
        assert len(part.pairs) % part.block == 0
        assert len(part.pairs) // part.block >= 4
        assert_apart(list(rows.split(part.block)))
        seen.append(rows)
        assert_known(part.pairs, change(known(task, records, rows), rows))
    assert_apart(seen)
    assert len({tuple(row) for row in seen[0].tolist()}) > 30


@pytest.mark.parametrize("norm", NORMS)
def test_batch_normalisation_in_train_mode_takes_whole_batches(norm: str) -> None:
    task, records = marked(COUNT, NORMS[norm]()), data()
    task.model.train()
    before, rng = copy.deepcopy(task.model.state_dict()), torch.get_rng_state()
    parts = gathered(task, records)
    deep = gathered(task, records, features="norm")
    assert_untouched(task.model, before, training=True)
    assert torch.equal(rng, torch.get_rng_state())
    assert_fixed(task, records, parts)
    rows = rows_of(parts.stopping.pairs.features)
    own = copy.deepcopy(task.model)
    means = torch.stack([own.norm(own.first(records.x[b, COUNT:])).mean(0) for b in rows])
    found = deep.stopping.pairs.features.double()
    torch.testing.assert_close(found, means.detach(), rtol=1e-5, atol=1e-6)


def test_in_eval_mode_it_takes_the_pool() -> None:
    task = marked(COUNT, nn.BatchNorm1d(5))
    task.model.eval()
    assert isinstance(gathered(task, data()).fitting, PooledPairs)


def test_class_weights_in_the_loss_take_whole_batches() -> None:
    weight = torch.tensor([0.2, 1.0, 5.0], dtype=torch.float64)
    task, records = marked(loss=nn.CrossEntropyLoss(weight=weight)), data()
    assert_fixed(task, records, gathered(task, records))


def over_rows(function):
    """A change of each update by a literal function of all its numbers."""

    def change(grads, rows):
        widths = [leaf.shape[1] for leaf in grads.values()]
        whole = torch.cat(list(grads.values()), 1).tolist()
        made = torch.tensor([function(row) for row in whole], dtype=torch.float64)
        return dict(zip(grads, made.split(widths, 1), strict=True))

    return change


def test_signs_are_those_of_the_update() -> None:
    task, records = marked(), data()
    parts = gathered(task, records, defense=defenses.sign())
    assert_fixed(task, records, parts, over_rows(literal.sign))


def test_pruning_is_of_the_update() -> None:
    task, records = marked(), data()
    parts = gathered(task, records, defense=defenses.prune(0.8, whole=True))
    assert_fixed(task, records, parts, over_rows(lambda row: literal.prune(row, 0.8)))


def clipped_mean(task: Task, records: Dataset, l2: float):
    def change(_, rows: Tensor) -> dict[str, Tensor]:
        each = known(task, records, rows.reshape(-1, 1))
        clipped = over_rows(lambda row: literal.clip(row, l2))(each, None)
        assert (torch.cat(list(each.values()), 1).norm(dim=1) > l2).any()
        return {name: leaf.reshape(*rows.shape, -1).mean(1) for name, leaf in clipped.items()}

    return change


@pytest.mark.parametrize("defense", ["clip", "dpsgd"])
def test_clipping_is_of_each_record(defense: str) -> None:
    task, records = marked(), data()
    made = defenses.clip(0.5) if defense == "clip" else defenses.dpsgd(0.5, 0.0, batch_size=BATCH)
    parts = gathered(task, records, defense=made)
    assert_fixed(task, records, parts, clipped_mean(task, records, 0.5))


@pytest.mark.parametrize(
    ("defense", "std"),
    [(defenses.gaussian(0.3), 0.3), (defenses.dpsgd(1e6, 0.6, batch_size=BATCH), 0.3)],
    ids=["noise", "dpsgd"],
)
def test_noise_is_added_to_each_update_anew(defense: Defense, std: float) -> None:
    task, records = marked(), data()
    noises = []
    for part in sources(gathered(task, records, defense=defense, pairs=200)):
        exact = known(task, records, rows_of(part.pairs.features))
        for name, leaf in exact.items():
            noises.append((part.pairs.gradients[name].double() - leaf).flatten())
    noise = torch.cat(noises)
    assert float(noise.std()) == pytest.approx(std, rel=0.05)
    assert abs(float(noise.mean())) < 0.02
    assert len(noise.unique()) > 0.99 * len(noise)


def assert_untouched(model: nn.Module, before: dict[str, Tensor], *, training: bool) -> None:
    assert all(torch.equal(leaf, before[key]) for key, leaf in model.state_dict().items())
    assert list(model.state_dict()) == list(before)
    assert all(module.training == training for module in model.modules())
    assert all(leaf.grad is None and leaf.requires_grad for leaf in model.parameters())
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
        assert not module._backward_hooks


@pytest.mark.parametrize("defense", [None, defenses.gaussian(0.1), defenses.clip(0.5)])
def test_the_callers_model_and_generator_are_as_before(defense) -> None:
    task = marked()
    before, rng = copy.deepcopy(task.model.state_dict()), torch.get_rng_state()
    numpy = np.random.get_state()[1].copy()  # noqa: NPY002
    gathered(task, data(), defense=defense)
    assert_untouched(task.model, before, training=True)
    assert torch.equal(rng, torch.get_rng_state())
    assert (numpy == np.random.get_state()[1]).all()  # noqa: NPY002


@pytest.mark.parametrize("defense", [None, defenses.gaussian(0.1)])
def test_they_are_so_after_an_error(defense, monkeypatch) -> None:
    task = marked(COUNT, nn.BatchNorm1d(5)) if defense else marked()
    before, rng = copy.deepcopy(task.model.state_dict()), torch.get_rng_state()

    def fails(*_, **__):
        raise RuntimeError("stopped")

    monkeypatch.setattr(gathering, "_joined", fails)
    with pytest.raises(RuntimeError, match="stopped"):
        gathered(task, data(), defense=defense)
    assert_untouched(task.model, before, training=True)
    assert torch.equal(rng, torch.get_rng_state())


@pytest.mark.parametrize("defense", [None, defenses.gaussian(0.1)])
def test_a_seed_deals_alike_at_every_checkpoint(defense) -> None:
    task, records = marked(), data()

    def found(seed: int, params):
        parts = checkpoint_parts(task, params, records, how(defense=defense), seed=seed)
        part = parts.fitting
        return part.records if isinstance(part, PooledPairs) else part.pairs

    params = params_of(task.model)
    moved = {name: leaf + 0.1 for name, leaf in params.items()}
    first, again, later, other = (
        found(1, params),
        found(1, params),
        found(1, moved),
        found(2, params),
    )
    assert torch.equal(first.features, again.features)
    assert all(torch.equal(first.gradients[n], again.gradients[n]) for n in first.gradients)
    assert torch.equal(first.features, later.features)
    assert not any(torch.equal(first.gradients[n], later.gradients[n]) for n in first.gradients)
    assert not torch.equal(first.features, other.features)


def test_long_gradients_are_sketched_by_one_map_in_all_parts() -> None:
    task, records = marked(), data()
    whole = sources(gathered(task, records))
    kept = sources(gathered(task, records, width=9, features=None))
    assert all(one.records.features.shape[1] == 5 for one in kept)
    for name in ("first", "last"):
        long, short = (
            torch.cat([one.records.gradients[name].double() for one in group])
            for group in (whole, kept)
        )
        assert short.shape == (COUNT, 9)
        solved = torch.linalg.pinv(long, rtol=1e-5) @ short
        if name == "first":  # the last layer's columns sum up to 0, which leaves it open
            signs = solved.round()
            assert (solved - signs).abs().max() < 1e-3
            assert signs.abs().sum(1).tolist() == [1.0] * long.shape[1]
        assert (long @ solved - short).norm() < 1e-4 * short.norm()


def test_records_beyond_the_memory_are_left_out(monkeypatch) -> None:
    task, records = marked(2000), data(2000)
    shown = gathered(task, records)
    one = sum(
        leaf[0].nbytes
        for leaf in (shown.fitting.records.features, *shown.fitting.records.gradients.values())
    )
    monkeypatch.setattr(gathering, "MOST_BYTES", 3 * 300 * one)
    cut = gathered(task, records)
    assert len(shown.fitting.records) == 1200
    assert 300 <= len(cut.fitting.records) < 300 + 256
    assert len(cut.reporting.records) == 400
    monkeypatch.setattr(gathering, "MOST_BYTES", 3 * 20 * one)
    with pytest.raises(InputError, match=r"^20 records' features .* batches of 4 need 32: watch"):
        gathered(task, records)


def test_too_few_records_are_refused_in_one_line() -> None:
    assert fewest_records(BATCH) == 160
    gathered(marked(160), data(160))
    with pytest.raises(InputError, match=r"^there are 159 private records; .* need 160 or more"):
        gathered(marked(159), data(159))
    lumped = data(users=3)
    with pytest.raises(InputError, match=r"^a part of the pairs has \d+ records, as some users"):
        gathered(marked(), lumped)


@pytest.mark.parametrize("defense", [None, defenses.gaussian(0.1)])
def test_names_that_do_not_exist_name_the_nearest(defense) -> None:
    with pytest.raises(InputError, match=r"no layer 'frist' to watch; did you mean 'first'\?$"):
        gathered(marked(), data(), layers=["frist", "last"], defense=defense)
    with pytest.raises(InputError, match=r"no module 'al' .*; did you mean 'all'\?$"):
        gathered(marked(), data(), features="al", defense=defense)


@pytest.mark.parametrize("defense", [None, defenses.gaussian(0.0), defenses.gaussian(0.1)])
def test_layers_come_in_the_order_that_was_asked(defense) -> None:
    part = gathered(marked(), data(), layers=["last", "first"], defense=defense).fitting
    pairs = part.records if isinstance(part, PooledPairs) else part.pairs
    assert list(pairs.gradients) == ["last", "first"]


@pytest.mark.parametrize("name", ["batch_size", "width", "pairs"])
def test_numbers_are_above_0(name: str) -> None:
    with pytest.raises(InputError, match=f"{name.replace('_', ' ')} is 0; expected a whole number"):
        how(**{name: 0})


def map_of_first(task: Task, *, seed: int = 0, **changed) -> Tensor:
    long, short = (
        gathered(task, data(), seed=seed, width=width, **changed).fitting for width in (100, 9)
    )
    pairs = [one.records if isinstance(one, PooledPairs) else one.pairs for one in (long, short)]
    both = [one.gradients["first"].double() for one in pairs]
    return (torch.linalg.pinv(both[0], rtol=1e-5) @ both[1]).round()


def test_the_map_is_the_same_at_all_checkpoints_and_on_both_paths() -> None:
    first, later = marked(), marked()
    with torch.no_grad():
        for leaf in later.model.parameters():
            leaf.add_(0.1)
    known = map_of_first(first)
    assert known.any()
    assert torch.equal(known, map_of_first(later))
    assert torch.equal(known, map_of_first(first, defense=defenses.clip(0.5), pairs=100))
    assert not torch.equal(known, map_of_first(first, seed=1))
