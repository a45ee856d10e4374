"""Updates of several epochs: the same records are found again."""

from itertools import permutations

import numpy as np
import pytest
import torch
from scipy.ndimage import zoom
from torch import Tensor

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream, torch_stream
from leakgauge.inversion.epochs.accuracy import matching_accuracy, true_records
from leakgauge.inversion.epochs.assignment import METHODS, arrange, match, match_epochs
from leakgauge.inversion.epochs.plan import EpochPlan


def pictures(n: int) -> Tensor:
    """Unlike images of 3 x 16 x 16, of blotches of four pixels."""
    coarse = stream(0, "pictures").uniform(size=(n, 3, 4, 4))
    return torch.from_numpy(zoom(coarse, (1, 1, 4, 4), order=0)).float()


def deal(n: int, batch: int, epochs: int) -> list[Tensor]:
    """Of each epoch the records of each update, ``[U, B]``."""
    rng = stream(0, "deal")
    return [torch.from_numpy(rng.permutation(n)).view(-1, batch) for _ in range(epochs)]


def rough(truth: Tensor, members: list[Tensor], std: float) -> list[Tensor]:
    rng = torch_stream(0, "rough")
    return [
        truth[one] + std * torch.randn(truth[one].shape, generator=rng) for one in members
    ]  # fmt: skip


def test_the_optimal_order_is_the_best_of_all() -> None:
    first, other = torch.rand(2, 6, 1, 4, 4, generator=torch_stream(0, "pair"))
    labels = torch.tensor([0, 1, 0, 1, 1, 0])

    def cost(order: tuple[int, ...]) -> float:
        apart = (first - other[list(order)]).view(6, 2, 2, 2, 2).mean(dim=(2, 4))
        return float(apart.square().sum())

    allowed = [o for o in permutations(range(6)) if torch.equal(labels[list(o)], labels)]
    found = match(first, other, labels, labels, method="optimal")
    assert tuple(found.tolist()) == min(allowed, key=cost)


def test_greedy_takes_the_nearest_that_is_left() -> None:
    first, other = (torch.tensor(x)[:, None] for x in ([0.0, 1.0], [0.9, -3.0]))
    same = torch.zeros(2, dtype=torch.int64)
    orders = {m: match(first, other, same, same, pool=1, method=m).tolist() for m in METHODS}
    # 0 is next to 0.9 and leaves -3 for 1; together they are better off the other way round.
    assert orders == {"greedy": [0, 1], "optimal": [1, 0]}


@pytest.mark.parametrize("method", METHODS)
def test_only_records_of_the_same_label_are_matched(method: str) -> None:
    x = torch.tensor([0.0, 1.0, 2.0, 3.0])[:, None]
    first, other = torch.tensor([5, 6, 5, 6]), torch.tensor([6, 5, 6, 5])
    order = match(x, x, first, other, pool=1, method=method)
    assert torch.equal(other[order], first)
    # Without a label in common, all are matched with what is left.
    assert match(x, x, first, first + 9, pool=1, method=method).tolist() == [0, 1, 2, 3]


def test_pooling_forgives_noise_that_single_pixels_do_not() -> None:
    truth = 0.1 * pictures(40)
    (one, two), same = rough(truth, deal(40, 1, 2), 0.1), torch.zeros(40, dtype=torch.int64)
    members = deal(40, 1, 2)
    right = {}
    for pool in (1, 2, 4):
        plan = match_epochs([one, two], [same[:, None]] * 2, pool=pool, method="optimal")
        right[pool] = float(matching_accuracy(plan, [m.flatten() for m in members]))
    assert right[4] > right[2] + 0.1 > right[1] + 0.2


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("batch", [1, 4])
def test_records_are_found_again_in_every_epoch(batch: int, method: str) -> None:
    truth, labels = pictures(24), torch.arange(24) % 3
    members = deal(24, batch, 3)
    found = rough(truth, members, 0.1)
    # The order within a batch is lost.
    shuffle = torch.from_numpy(stream(0, "within").permutation(batch))
    found, members = [x[:, shuffle] for x in found], [m[:, shuffle] for m in members]
    plan = match_epochs(found, [labels[m] for m in members], method=method)
    records = [true_records(x, truth, m) for x, m in zip(found, members, strict=True)]
    assert matching_accuracy(plan, records).tolist() == [1.0, 1.0]
    for epoch, images in enumerate(found):
        again = plan.batches(truth[records[0]], epoch=epoch)
        assert (again - images).square().mean() < 0.02
        update = plan.order(epoch) // batch
        assert all(
            records[0][record] in members[epoch][u] for record, u in enumerate(update.tolist())
        )


def test_records_of_an_update_are_arranged_as_its_images() -> None:
    truth, labels = pictures(24), torch.arange(24) % 3
    members = deal(24, 4, 3)
    numbers = members[0].flatten().argsort()  # of the true records, as the first epoch has them
    within = torch.tensor([2, 0, 3, 1])
    plan = EpochPlan(torch.stack([numbers[m] for m in members])[:, :, within])
    images = rough(truth, members, 0.1)
    x, named = truth[members[0].flatten()], [labels[m] for m in members]
    plan = EpochPlan(torch.stack([torch.arange(24).view(6, 4), *plan.members[1:]]))
    found = arrange(plan, x, named[0].flatten(), images, named)
    for epoch, held in enumerate(members):
        assert torch.equal(found.members[epoch].sort(dim=1)[0], plan.members[epoch].sort(dim=1)[0])
        assert torch.equal(found.batches(x, epoch=epoch), truth[held])
    assert not torch.equal(plan.batches(x, epoch=1), truth[members[1]])


@pytest.mark.calibration
def test_pure_noise_is_matched_by_chance() -> None:
    n, members = 400, deal(400, 1, 2)
    x = [torch.rand(n, 1, 1, 4, 4, generator=torch_stream(0, "chance", e)) for e in (0, 1)]
    plan = match_epochs(x, [torch.zeros(n, 1, dtype=torch.int64)] * 2)
    # A random permutation has one fixed point on average, and hardly ever more than 6.
    assert float(matching_accuracy(plan, [m.flatten() for m in members])) <= 6 / n


def test_true_records_name_what_each_update_held() -> None:
    truth, members = pictures(8), deal(8, 4, 1)[0]
    within = torch.tensor([2, 0, 3, 1])
    found = truth[members][:, within]
    assert torch.equal(true_records(found, truth, members), members[:, within].flatten())


def test_gradients_flow_through_a_plan() -> None:
    plan = EpochPlan(torch.tensor([[[0, 1]], [[1, 0]]]))
    x = torch.tensor([2.0, 5.0], requires_grad=True)
    plan.batches(x, epoch=1)[0, 0].backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 1.0]


FOUR = torch.zeros(4, 1, 4, 4)
CODES = torch.zeros(4, dtype=torch.int64)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: EpochPlan(torch.tensor([[[0, 0]]])), r"epoch 0 does not hold each of 2 records"),
        (lambda: EpochPlan(torch.tensor([0])), r"\[1\]; expected \[epochs, updates"),
        (lambda: match(FOUR, FOUR, CODES, CODES, method="best"), r"'best'; known: 'greedy'"),
        (lambda: match(FOUR, FOUR[:3], CODES, CODES), r"\[4, 1, 4, 4\] and \[3, 1, 4, 4\]"),
        (lambda: match(FOUR, FOUR * np.nan, CODES, CODES), r"not finite"),
        (lambda: match(FOUR[:, 0, 0], FOUR[:, 0, 0], CODES, CODES), r"use pool=1"),
        (lambda: arrange(EpochPlan(CODES[:1].view(1, 1, 1)), FOUR, CODES, [], []), r"plan of 1"),
        (lambda: match_epochs([FOUR[None]], []), r"1 epochs and labels of 0"),
        (lambda: match_epochs([FOUR[None]], [CODES]), r"expected \[U, B, \.\.\.\] and \[U, B\]"),
    ],
)
def test_what_cannot_be_matched_is_refused_in_one_line(call, said: str) -> None:
    with pytest.raises(InputError, match=said) as refused:
        call()
    assert "\n" not in str(refused.value)
