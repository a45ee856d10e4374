"""Records rebuilt from the updates of several epochs: AGIC's Eq. 5, and weights of each update."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from leakgauge.core.checks import InputError
from leakgauge.core.rng import torch_stream
from leakgauge.core.types import Grads, Params, Task
from leakgauge.gradients import params_of
from leakgauge.inversion.epochs.epoch import Epoch, EpochPlan
from leakgauge.inversion.epochs.joint import joint_reconstruct
from leakgauge.inversion.epochs.per_sample import per_sample_reconstruct
from leakgauge.inversion.epochs.refinement import swapped
from leakgauge.inversion.search.objective import Cosine, SquaredError
from leakgauge.inversion.search.presets import preset
from leakgauge.inversion.search.settings import SearchSettings
from leakgauge.training import Update
from support.small_conv import small_task

BOX = {"low": torch.tensor(-9.0), "high": torch.tensor(9.0), "seed": 0}
COSINE = SearchSettings(objective=Cosine(), optimizer="adam", iterations=1)


# --- Eq. 5 by hand -------------------------------------------------------------------------------

MEAN = Task(nn.Linear(2, 1, bias=False).double(), lambda outputs, _: outputs.mean())
"""Its gradient is the mean of a batch's records, whatever the weights are."""


def sent(*rows: list[float]) -> Epoch:
    """An epoch of updates with these gradients of ``MEAN``."""
    grads = torch.tensor(rows, dtype=torch.float64)[:, None]
    return Epoch.of_one_model(params_of(MEAN.model), {"weight": grads})


def start_loss(epochs: list[Epoch], members: list, start: list, **given) -> Tensor:
    """The objective of the per-sample rule at its start, of each record."""
    plan = EpochPlan(torch.tensor(members))
    labels = [torch.zeros_like(one) for one in plan.members]
    x = torch.tensor(start, dtype=torch.float64)
    found = per_sample_reconstruct(
        MEAN, epochs, plan, COSINE, labels=labels, record=(2,), start=x, **BOX, **given
    )
    return found.losses[:, 0]


def test_eq_5_of_two_updates_by_hand() -> None:
    """The gradient of the record (3, 4) is itself.

    Update 1 is (1, 0): the cosine is 3 / 5, the distance 0.4. Update 2 is (0, 1): the cosine is
    4 / 5, the distance 0.2. With gamma 1 and 0.1 their sum is 0.4 + 0.1 * 0.2 = 0.42.
    """
    loss = start_loss([sent([1, 0]), sent([0, 1])], [[[0]], [[0]]], [[[3, 4]]])
    assert loss.tolist() == pytest.approx([0.42])
    equal = start_loss([sent([1, 0]), sent([0, 1])], [[[0]], [[0]]], [[[3, 4]]], weights=[1, 1])
    assert equal.tolist() == pytest.approx([0.6])


def test_eq_5_of_batches_shares_the_common_record_alone() -> None:
    """Two epochs of one update of two records; the record, then one free record of each epoch.

    Record 0 is (4, 0) with (2, 8) free in epoch 1: their mean is (3, 4), and the update (1, 0), so
    the distance is 0.4. With (2, -8) free in epoch 2 the mean is (3, -4), and the update (0, -1):
    0.2. Together 0.42. Record 1 is (0, 4) with (6, 4), then (-6, 4): means (3, 4) and (-3, 4). The
    distances from (1, 0) and (0, -1) are 0.4 and 1.8: 0.4 + 0.1 * 1.8 = 0.58.
    """
    loss = start_loss(
        [sent([1, 0]), sent([0, -1])],
        [[[0, 1]], [[1, 0]]],
        [[[4, 0], [2, 8], [2, -8]], [[0, 4], [6, 4], [-6, 4]]],
    )
    assert loss.tolist() == pytest.approx([0.42, 0.58])


def test_each_record_is_compared_with_the_updates_that_the_plan_names() -> None:
    """Two records (3, 4), single; the second epoch has them the other way round.

    Record 0: updates (1, 0) and (0, 1) as above, 0.42. Record 1: (0, 1) and (1, 0):
    0.2 + 0.1 * 0.4 = 0.24.
    """
    epochs = [sent([1, 0], [0, 1]), sent([1, 0], [0, 1])]
    loss = start_loss(epochs, [[[0], [1]], [[1], [0]]], [[[3, 4]], [[3, 4]]])
    assert loss.tolist() == pytest.approx([0.42, 0.24])


# --- a gradient that shows one value of a record -------------------------------------------------


class Weighted(nn.Module):
    """Its gradient in weight i is ``2 w_i x_i``, which hides value i where the weight is 0."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return (self.weight.square() * x).sum(-1)


ONE_VALUE = Task(Weighted(), lambda outputs, _: outputs.mean())
AXES = torch.eye(3, dtype=torch.float64)
SINGLE = torch.tensor([[[0], [1]], [[1], [0]], [[0], [1]]])
"""Index, among two records, of each update's record in three epochs of two updates."""

PAIR = torch.tensor([[0.5, -1.0, 2.0], [-1.5, 0.7, 0.3]], dtype=torch.float64)
EXACT = preset("dlg", iterations=60)


def one_value_each() -> list[Epoch]:
    """Epoch e shows value e of record 0, and value e + 1 (modulo 3) of record 1."""
    epochs = []
    for number, of_epoch in enumerate(SINGLE):
        records = of_epoch[:, 0]
        weights = AXES[(number + records) % 3]
        epochs.append(Epoch({"weight": weights}, {"weight": 2 * weights * PAIR[records]}))
    return epochs


def first_weights(epochs: list[Epoch]) -> list[Epoch]:
    """The same updates as if all of an epoch had started where its first one did."""
    return [
        Epoch.of_one_model({name: leaf[0] for name, leaf in one.params.items()}, one.grads)
        for one in epochs
    ]


def rebuilt(rule: str, epochs: list[Epoch], members: Tensor) -> Tensor:
    """The records ``[2, 3]``, by the known plan, all of them of label 0."""
    plan = EpochPlan(members)
    shared = {"record": (3,), **BOX}
    if rule == "all":
        labels = torch.zeros(2, dtype=torch.int64)
        return joint_reconstruct(ONE_VALUE, epochs, plan, EXACT, labels=labels, **shared).x[0]
    own = [torch.zeros_like(one) for one in members]
    return per_sample_reconstruct(ONE_VALUE, epochs, plan, EXACT, labels=own, **shared).x[:, 0]


@pytest.mark.parametrize("rule", ["per-sample", "all"])
def test_three_epochs_rebuild_what_a_single_one_cannot(rule: str) -> None:
    """The plan is known. A single update does not show two of the three values."""
    epochs = one_value_each()
    torch.testing.assert_close(rebuilt(rule, epochs, SINGLE), PAIR, atol=1e-4, rtol=0)
    alone = rebuilt(rule, epochs[:1], SINGLE[:1])
    assert (alone - PAIR).square().mean() > 0.1
    for record in range(2):  # but the value that it does show is right
        torch.testing.assert_close(alone[record, record], PAIR[record, record], atol=1e-4, rtol=0)


@pytest.mark.parametrize("rule", ["per-sample", "all"])
def test_the_weights_of_each_update_count(rule: str) -> None:
    """Every update of an epoch has its own; the first one's for all of them leads astray."""
    found = rebuilt(rule, first_weights(one_value_each()), SINGLE)
    assert (found - PAIR).abs().max() > 0.1


@pytest.mark.parametrize("rule", ["per-sample", "all"])
def test_a_wrong_plan_leads_astray(rule: str) -> None:
    found = rebuilt(rule, one_value_each(), SINGLE[[0, 0, 0]])
    assert (found - PAIR).abs().max() > 0.1


# --- a small network -----------------------------------------------------------------------------


TASK = small_task()
DEALT = torch.tensor([[[0, 1], [2, 3]], [[3, 0], [1, 2]], [[1, 3], [0, 2]]])
Y = torch.tensor([0, 1, 2, 0])


def people(n: int = 4) -> Tensor:
    generator = torch_stream(0, "people")
    return torch.randn(n, 1, 4, 4, generator=generator, dtype=torch.float64)


def moved(number: int) -> Params:
    """The weights of round ``number``: far from those of every other."""
    generator = torch_stream(number, "moved")
    return {
        name: leaf + 0.3 * torch.randn(leaf.shape, generator=generator, dtype=leaf.dtype)
        for name, leaf in params_of(TASK.model).items()
    }


def gradient(params: Params, x: Tensor, y: Tensor) -> Params:
    leaves = {name: leaf.detach().clone().requires_grad_() for name, leaf in params.items()}
    F.cross_entropy(torch.func.functional_call(TASK.model, leaves, (x,)), y).backward()
    return {name: leaf.grad for name, leaf in leaves.items()}


def played(members: Tensor, x: Tensor, y: Tensor = Y) -> list[Epoch]:
    """What a server sees whose model moves after each update."""
    epochs, number = [], 0
    for of_epoch in members:
        params, grads = [], []
        for held in of_epoch:
            params.append(moved(number))
            grads.append(gradient(params[-1], x[held], y[held]))
            number += 1
        epochs.append(Epoch(_stacked(params), _stacked(grads)))
    return epochs


def _stacked(rows: list[Params]) -> Grads:
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def labels_of(members: Tensor) -> list[Tensor]:
    return [Y[held] for held in members]


def test_updates_of_one_model_give_what_repeated_weights_give() -> None:
    x, plan = people(), EpochPlan(DEALT[:2])
    params = params_of(TASK.model)
    grads = [
        _stacked([gradient(params, x[held], Y[held]) for held in of_epoch])
        for of_epoch in DEALT[:2]
    ]
    together = [Epoch.of_one_model(params, one) for one in grads]
    apart = [Epoch(_stacked([params, params]), one) for one in grads]
    assert [one.one_model for one in (*together, *apart)] == [True, True, False, False]
    settings = preset("dlg-adam", iterations=5)
    for rule, labels in (
        (joint_reconstruct, Y),
        (per_sample_reconstruct, labels_of(DEALT[:2])),
    ):
        one, other = (
            rule(TASK, seen, plan, settings, labels=labels, record=(1, 4, 4), **BOX)
            for seen in (together, apart)
        )
        torch.testing.assert_close(one.x, other.x)


def test_swaps_are_judged_at_the_weights_of_each_update() -> None:
    """The records are known, so the deal with the right weights is the true one."""
    x = people(6)
    y = torch.zeros(6, dtype=torch.int64)
    truth = torch.tensor([[4, 0], [2, 5], [1, 3]])
    (epoch,) = played(truth[None], x, y)
    for begin in ([[0, 1], [2, 3], [4, 5]], [[3, 5], [0, 1], [2, 4]]):
        found = swapped(TASK, epoch, torch.tensor(begin), x, y, Cosine())
        assert [set(held) for held in found.tolist()] == [set(held) for held in truth.tolist()]


def test_a_record_is_rescaled_with_its_batch_of_the_first_epoch() -> None:
    x, plan = people(), EpochPlan(DEALT[:2])
    epochs = played(DEALT[:2], x)
    chosen = SearchSettings(objective=Cosine(), optimizer="adam", iterations=8)
    plain, scaled = (
        per_sample_reconstruct(
            TASK, epochs, plan, one, labels=labels_of(DEALT[:2]), record=(1, 4, 4), **BOX
        ).x
        for one in (chosen, SearchSettings(**{**vars(chosen), "rescale": True}))
    )
    ratio = (scaled / plain).flatten(1)
    assert (ratio - ratio[:, :1]).abs().max() < 1e-6
    assert (ratio[:, 0] - 1).abs().max() > 0.04


def test_labels_of_an_update_are_its_own() -> None:
    """Two records with labels that the plan exchanges in epoch 2: the record of the
    first label then has the second one there, and each update keeps its list of labels."""
    x = people(2)
    plan = EpochPlan(torch.tensor([[[0, 1]], [[1, 0]]]))
    epochs = played(torch.tensor([[[0, 1]], [[0, 1]]]), x)
    labels = [torch.tensor([[0, 1]]), torch.tensor([[0, 1]])]
    start = people(6).view(2, 3, 1, 4, 4)
    settings = SearchSettings(objective=SquaredError(), optimizer="adam", iterations=1)
    found = per_sample_reconstruct(
        TASK, epochs, plan, settings, labels=labels, record=(1, 4, 4), start=start, **BOX
    )
    for record, (own, other) in enumerate(((0, 1), (1, 0))):
        wanted = 0.0
        for number, (gamma, names) in enumerate(((1.0, (own, other)), (0.1, (other, own)))):
            batch = start[record][[0, 1 + number]]
            params = {name: leaf[0] for name, leaf in epochs[number].params.items()}
            grads = gradient(params, batch, torch.tensor(names))
            wanted += gamma * sum(
                float((grads[name] - leaf[0]).square().sum())
                for name, leaf in epochs[number].grads.items()
            )
        assert float(found.losses[record, 0]) == pytest.approx(wanted)
    assert found.labels.tolist() == [[0], [1]]


# --- captured rounds -----------------------------------------------------------------------------


def test_captured_updates_of_several_rounds_are_epochs() -> None:
    """A gradient, and a change of weights after two local steps, each with its own model."""
    x = people()
    (plain,) = played(DEALT[:1], x)
    captured = []
    for number, held in enumerate(DEALT[0]):
        before, lr = moved(number), 0.5
        grads = gradient(before, x[held], Y[held])
        if number:
            change = {name: -lr * 2 * leaf for name, leaf in grads.items()}
            captured.append(Update("change", change, before, lr=lr, steps=2))
        else:
            captured.append(Update("gradient", grads, before))
    epoch = Epoch.of_updates(captured)
    assert len(epoch) == 2
    for name, leaf in plain.params.items():
        assert torch.equal(epoch.params[name], leaf)
        torch.testing.assert_close(epoch.grads[name], plain.grads[name])


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: Epoch.of_updates([]), "an epoch has no updates"),
        (lambda: Epoch({"w": torch.zeros(3)}, {"w": torch.zeros(2, 3)}), r"\[2, 3\] at weights"),
        (lambda: Epoch({"w": torch.zeros(2, 3)}, {"v": torch.zeros(2, 3)}), "'w' has no gradient"),
        (
            lambda: start_loss([sent([1, 0])], [[[0]], [[0]]], [[[3, 4]]]),
            "the plan is of 2 epochs, 1 came with 1 weights",
        ),
        (
            lambda: start_loss([sent([1, 0]), sent([1, 0])], [[[0], [1]]] * 2, [[[3, 4]]] * 2),
            "epoch 1 has 1 updates, and the plan is of 2",
        ),
        (
            lambda: per_sample_reconstruct(
                MEAN, [sent([1, 0])], EpochPlan(torch.tensor([[[0]]])), COSINE,
                labels=[torch.zeros(2, 1)], record=(2,), **BOX,
            ),
            r"labels of the epochs are \[\[2, 1\]\]; expected \[1, 1\]",
        ),
    ],
)  # fmt: skip
def test_parts_that_do_not_fit_are_refused_in_one_line(call, said: str) -> None:
    with pytest.raises(InputError, match=said) as refused:
        call()
    assert "\n" not in str(refused.value)
