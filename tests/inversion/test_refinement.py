"""Which records an update holds, told by gradients, against all ways to deal them."""

from collections.abc import Iterator, Sequence
from itertools import combinations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from leakgauge.core.checks import InputError
from leakgauge.core.rng import torch_stream
from leakgauge.core.types import Grads, Task
from leakgauge.gradients import params_of
from leakgauge.inversion.epochs import refinement
from leakgauge.inversion.epochs.epoch import Epoch, EpochPlan
from leakgauge.inversion.epochs.joint import joint_reconstruct
from leakgauge.inversion.epochs.refinement import refine_assignment, swapped
from leakgauge.inversion.search.layer_weights import DepthWeights, LayerWeights
from leakgauge.inversion.search.objective import Cosine, Objective, SquaredError
from leakgauge.inversion.search.presets import preset
from support.small_conv import small_task

LOW, HIGH = torch.tensor(-3.0), torch.tensor(3.0)


TASK = small_task()
WEIGHTED = DepthWeights().objective(TASK.model)
MODIFIED = LayerWeights().objective(TASK.model)


def records(n: int, name: str) -> tuple[Tensor, Tensor]:
    """All of one label, so that it says nothing of where they are."""
    generator = torch_stream(0, "records", name)
    x = torch.randn(n, 1, 4, 4, generator=generator, dtype=torch.float64)
    return x, torch.zeros(n, dtype=torch.int64)


def sent(x: Tensor, y: Tensor, members: Tensor, model: nn.Module = TASK.model) -> Grads:
    """Return the gradient of each update's mean loss, from plain autograd."""
    rows = []
    for held in members:
        leaves = list(model.parameters())
        rows.append(torch.autograd.grad(F.cross_entropy(model(x[held]), y[held]), leaves))
    names = [name for name, _ in model.named_parameters()]
    stacked = [torch.stack(leaves) for leaves in zip(*rows, strict=True)]
    return dict(zip(names, stacked, strict=True))


def every_deal(left: Sequence[int], size: int) -> Iterator[list[list[int]]]:
    """All ways to deal records into updates, in whatever order within one."""
    if not left:
        yield []
        return
    for first in combinations(left, size):
        rest = [one for one in left if one not in first]
        for others in every_deal(rest, size):
            yield [list(first), *others]


def sets(members: Tensor) -> list[set[int]]:
    return [set(held) for held in members.tolist()]


def epoch_of(grads: Grads) -> Epoch:
    return Epoch.of_one_model(params_of(TASK.model), grads)


@pytest.mark.parametrize(
    ("objective", "blur"),
    [
        (WEIGHTED, 0.0),
        (Cosine(), 0.7),
        (MODIFIED, 0.7),
        pytest.param(Cosine(), 0.0, marks=pytest.mark.slow),
        pytest.param(WEIGHTED, 0.7, marks=pytest.mark.slow),
        pytest.param(MODIFIED, 0.0, marks=pytest.mark.slow),
        pytest.param(Cosine(layers=("3.weight",)), 0.0, marks=pytest.mark.slow),
        pytest.param(Cosine(layers=("3.weight",)), 0.7, marks=pytest.mark.slow),
    ],
)
def test_no_swap_of_two_records_comes_nearer(objective: Objective, blur: float) -> None:
    """Start at every third way to deal them; with well-known records, the right one is found."""
    x, y = records(6, "six")
    truth = torch.tensor([[4, 0], [2, 5], [1, 3]])
    grads = sent(x, y, truth)
    grads["0.weight"][0].flatten()[1:] = 0.0  # so that the modified weights differ by update
    noise = torch.randn(x.shape, generator=torch_stream(0, "blur"), dtype=torch.float64)
    guess = (1 - blur) * x + blur * noise

    def distance(deal: list[list[int]]) -> float:
        return float(objective(sent(guess, y, torch.tensor(deal)), grads).sum())

    all_of = {str(list(map(sorted, deal))): distance(deal) for deal in every_deal(range(6), 2)}
    assert len(all_of) == 90
    for deal in list(every_deal(range(6), 2))[::3]:
        found = swapped(TASK, epoch_of(grads), torch.tensor(deal), guess, y, objective).tolist()
        ends = all_of[str(list(map(sorted, found)))]
        assert ends <= distance(deal) + 1e-9
        for u, v in combinations(range(3), 2):
            for i in range(2):
                for j in range(2):
                    near = [list(held) for held in found]
                    near[u][i], near[v][j] = near[v][j], near[u][i]
                    assert ends <= all_of[str(list(map(sorted, near)))] + 1e-8
        if not blur:
            assert sets(torch.tensor(found)) == sets(truth)


def test_another_objective_is_scored_by_the_plain_cosine() -> None:
    x, y = records(6, "six")
    epoch = epoch_of(sent(x, y, torch.tensor([[4, 0], [2, 5], [1, 3]])))
    begin, guess = torch.arange(6).view(3, 2), x.flip(3)
    one, other = (
        swapped(TASK, epoch, begin, guess, y, measure) for measure in (SquaredError(), Cosine())
    )
    assert torch.equal(one, other)


def test_records_that_ran_off_stay_where_they_are() -> None:
    x, y = records(4, "four")
    members = torch.tensor([[3, 0], [1, 2]])
    found = swapped(TASK, epoch_of(sent(x, y, members)), members, x * torch.nan, y, Cosine())
    assert sets(found) == sets(members)


def test_gradients_of_very_unequal_size_end_the_swaps() -> None:
    """Next to a large gradient small ones are rounding, so a predicted gain can be wrong.

    A network that is sure of its answer gives such gradients: those of correctly classified records
    are ten thousand million times smaller.
    """
    for seed in range(20):
        generator = torch_stream(seed, "unequal")
        model = nn.Linear(20, 5)
        with torch.no_grad():
            for value in model.parameters():
                value.copy_(8 * torch.randn(value.shape, generator=generator))
        x = torch.randn(16, 20, generator=generator)
        wrong = torch.rand(16, generator=generator) < 0.4
        y = (model(x).argmax(1) + wrong) % 5
        members = torch.randperm(16, generator=generator).view(4, 4)
        epoch = Epoch.of_one_model(params_of(model), sent(x, y, members, model))
        guess = x + 0.3 * torch.randn(x.shape, generator=generator)
        task = Task(model, F.cross_entropy)
        found = swapped(task, epoch, torch.arange(16).view(4, 4), guess, y, Cosine())
        assert found.flatten().sort().values.tolist() == list(range(16))


DEALT = torch.tensor([[[0, 1], [2, 3]], [[3, 0], [1, 2]], [[1, 3], [0, 2]]])


@pytest.mark.parametrize(
    "wrong",
    [
        [[0, 1], [2, 3]],
        pytest.param([[0, 2], [1, 3]], marks=pytest.mark.slow),
        pytest.param([[1, 2], [3, 0]], marks=pytest.mark.slow),
    ],
)
def test_a_wrong_plan_is_corrected(wrong: list[list[int]]) -> None:
    """This includes plans that exchange the first two epochs, or the updates of one."""
    x, y = records(4, "four")
    seen = [epoch_of(sent(x, y, members)) for members in DEALT]
    begin = DEALT.clone()
    begin[1] = torch.tensor(wrong)
    steps: list[int] = []
    found = refine_assignment(
        TASK, seen, EpochPlan(begin), preset("dlg-adam", iterations=200),
        labels=y, record=(1, 4, 4), low=LOW, high=HIGH, seed=0,
        progress=lambda at, _: steps.append(at),
    )  # fmt: skip
    for plan, truth in zip(found.members, DEALT, strict=True):
        assert sets(plan) == sets(truth)
    assert torch.equal(found.members[0], DEALT[0])
    assert steps == list(range(120))


def test_each_later_epoch_is_left_out_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The prior is a multiple of the objective at noise, not at the start of a later search."""
    x, y = records(4, "four")
    seen = [epoch_of(sent(x, y, members)) for members in DEALT]
    calls: list[tuple] = []

    def spy(task, epochs, plan, settings, **given):
        found = joint_reconstruct(task, epochs, plan, settings, **given)
        numbers = [next(at for at, one in enumerate(seen) if one is kept) for kept in epochs]
        calls.append((numbers, settings, given["start"], found))
        return found

    monkeypatch.setattr(refinement, "joint_reconstruct", spy)
    settings = preset("leakgauge", iterations=40)
    refine_assignment(
        TASK, seen, EpochPlan(DEALT), settings,
        labels=y, record=(1, 4, 4), low=LOW, high=HIGH, seed=0,
    )  # fmt: skip
    (_, bare, _, first), *blocks = calls
    assert [numbers for numbers, *_ in blocks] == [[0, 1, 2], [0, 2], [0, 1]] * 4
    assert (bare.iterations, bare.total_variation) == (1, 0.0)
    weight = settings.total_variation * float(first.losses[0, 0])
    for at, (_, how, start, _) in enumerate(blocks):
        assert (how.prior_relative, how.iterations) == (False, 2)
        assert how.total_variation == pytest.approx(weight)
        assert start is (blocks[at - 1][3].x if at else None)


@pytest.mark.parametrize(("epochs", "size"), [(1, 2), (2, 4)])
def test_a_decided_plan_needs_no_search(
    epochs: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One epoch, or all records in one update."""
    monkeypatch.setattr(refinement, "joint_reconstruct", None)
    x, y = records(4, "four")
    plan = EpochPlan(torch.arange(4).view(1, -1, size).repeat(epochs, 1, 1))
    seen = [epoch_of(sent(x, y, members)) for members in plan.members]
    settings = preset("agic", iterations=3)
    given = {"labels": y, "record": (1, 4, 4), "low": LOW, "high": HIGH, "seed": 0}
    assert refine_assignment(TASK, seen, plan, settings, **given) is plan


@pytest.mark.parametrize("epochs", [0, 2])
def test_a_plan_of_other_epochs_is_refused(epochs: int) -> None:
    x, y = records(4, "four")
    seen = [epoch_of(sent(x, y, members)) for members in DEALT[:epochs]]
    given = {"labels": y, "record": (1, 4, 4), "low": LOW, "high": HIGH, "seed": 0}
    with pytest.raises(InputError, match=f"the plan is of 3 epochs, {epochs} came"):
        refine_assignment(TASK, seen, EpochPlan(DEALT), preset("agic"), **given)
