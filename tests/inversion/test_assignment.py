"""Updates of several epochs: the same records are found again."""

from itertools import permutations

import numpy as np
import pytest
import torch
from scipy.ndimage import zoom
from torch import Tensor

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream, torch_stream
from leakgauge.inversion.epochs.assignment import (
    METHODS,
    arrange,
    match,
    match_epochs,
    matching_accuracy,
    true_records,
)
from leakgauge.inversion.epochs.epoch import EpochPlan


def pictures(n: int) -> Tensor:
    """Unlike images of 3 x 16 x 16, of blotches of four pixels."""
    coarse = stream(0, "pictures").uniform(size=(n, 3, 4, 4))
    return torch.from_numpy(zoom(coarse, (1, 1, 4, 4), order=0)).float()


def deal(n: int, batch: int, epochs: int) -> list[Tensor]:
    """Return the records of each update ``[U, B]``, for each epoch."""
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
    found = match(first, other, allowed=labels[:, None] == labels, method="optimal")
    assert tuple(found.tolist()) == min(allowed, key=cost)


def numbers(*epochs: list[float]) -> list[Tensor]:
    """Return updates of one record of one pixel ``[n, 1, 1]``, for each epoch."""
    return [torch.tensor(epoch, dtype=torch.float64)[:, None, None] for epoch in epochs]


def test_greedy_takes_the_nearest_of_all_pairs_first() -> None:
    """Match images 0, 3, 5 to 2, 6, 9, and 0, 1 to 0.9, -3.

    The squared distances are, row by row, (4, 36, 81), (1, 9, 36), (9, 1, 16). Sorted: (1, 0) and
    (2, 1) at 1, then only (0, 2) is left. Row after row, each would take its own number, which is
    also the smallest sum: 4 + 9 + 16 = 29, against 1 + 1 + 81.

    Then (0.81, 9), (0.01, 16): (1, 0) at 0.01 leaves (0, 1), which is the smallest sum; row after
    row, 0 would take 0.9.
    """
    first, other = (x[:, 0] for x in numbers([0, 3, 5], [2, 6, 9]))
    assert match(first, other, pool=1).tolist() == [2, 0, 1]
    assert match(first, other, pool=1, method="optimal").tolist() == [0, 1, 2]
    first, other = (x[:, 0] for x in numbers([0, 1], [0.9, -3]))
    for method in METHODS:
        assert match(first, other, pool=1, method=method).tolist() == [1, 0]


def test_three_epochs_are_matched_one_after_the_other() -> None:
    """Two opposite points on a circle that turn by 80 degrees an epoch: the paper's rule, and ours.

    After one epoch a point is 80 degrees from itself and 100 from the other: 2 - 2 cos, its
    squared distance, is 1.65 against 2.35. After two epochs it is 160 degrees from itself and 20
    from the other, 3.88 against 0.12. The second epoch lists them in reverse.
    """

    def at(*degrees: float) -> Tensor:
        angle = torch.tensor(degrees).deg2rad()
        return torch.stack([angle.cos(), angle.sin()], dim=1)[:, None]

    epochs = [at(0, 180), at(260, 80), at(160, 340)]
    labels = [torch.zeros(2, 1, dtype=torch.int64)] * 3
    plans = {name: match_epochs(epochs, labels, pool=1, method=name) for name in METHODS}
    orders = {
        name: [plan.order(epoch).tolist() for epoch in range(3)] for name, plan in plans.items()
    }
    assert orders["greedy"] == [[0, 1], [1, 0], [0, 1]]
    assert orders["optimal"] == [[0, 1], [1, 0], [1, 0]]


def test_permutations_of_consecutive_epochs_are_composed() -> None:
    """Three records follow cycles that do not commute; each value has a known place."""
    epochs = numbers([1, 2, 3], [2, 3, 1], [2, 1, 3])
    plan = match_epochs(epochs, [torch.zeros(3, 1, dtype=torch.int64)] * 3, pool=1)
    assert [plan.order(epoch).tolist() for epoch in range(3)] == [[0, 1, 2], [2, 0, 1], [1, 0, 2]]
    for epoch in range(3):
        assert torch.equal(plan.batches(epochs[0][:, 0], epoch=epoch), epochs[epoch])


def test_updates_with_a_common_label_match() -> None:
    """The paper's filter for updates of several records, and ours by each image's label.

    First epoch: update A holds labels 1, 2 and the values 0, 10; update B holds 3, 4 and 20, 30.
    Second epoch: update C holds labels 4, 1 and the values 11, 1; update D holds 3, 2 and 21, 29.
    Every list shares a label with both others: A with C (1) and D (2), B with C (4) and D (3). So
    the nearest values are matched: 0 to 1, 10 to 11, 20 to 21, 30 to 29. With each image's label,
    1 is matched to 1 (0 to 1), 2 to 2 (10 to 29), 3 to 3 (20 to 21), 4 to 4 (30 to 11).

    With labels 5, 6 of C and 7, 2 of D only A and D share one. So 10 takes 21, the nearest of D,
    and 0 takes 29; B's are matched last, to what is left: 20 to 11, 30 to 1.
    """
    first, second = (
        torch.tensor(x, dtype=torch.float64)[..., None]
        for x in ([[0, 10], [20, 30]], [[11, 1], [21, 29]])
    )
    named = torch.tensor([[1, 2], [3, 4]])

    def matched(labels: list[list[int]], method: str = "greedy", **given: bool) -> list[int]:
        plan = match_epochs(
            [first, second], [named, torch.tensor(labels)], pool=1, method=method, **given
        )
        return second.flatten()[plan.order(1)].int().tolist()

    assert matched([[4, 1], [3, 2]]) == [1, 11, 21, 29]
    assert matched([[4, 1], [3, 2]], "optimal") == [1, 29, 21, 11]
    assert matched([[5, 6], [7, 2]]) == [29, 21, 11, 1]
    assert matched([[5, 6], [7, 2]], by_labels=False) == [1, 11, 21, 29]


@pytest.mark.parametrize("method", METHODS)
def test_single_records_of_the_same_label_are_matched(method: str) -> None:
    x = numbers([0, 1, 2, 3])[0]
    first, other = torch.tensor([5, 6, 5, 6])[:, None], torch.tensor([6, 5, 6, 5])[:, None]
    order = match_epochs([x, x], [first, other], pool=1, method=method).order(1)
    assert torch.equal(other[order], first)
    # Without a label in common, all are matched with what is left.
    plan = match_epochs([x, x], [first, first + 9], pool=1, method=method)
    assert plan.order(1).tolist() == [0, 1, 2, 3]


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
        (lambda: match(FOUR, FOUR, method="best"), r"'best'; known: 'greedy'"),
        (lambda: match(FOUR, FOUR[:3]), r"\[4, 1, 4, 4\] and \[3, 1, 4, 4\]"),
        (lambda: match(FOUR, FOUR, allowed=CODES == 0), r"pairs \[4\]; expected \[n, \.\.\.\]"),
        (lambda: match(FOUR, FOUR * np.nan), r"not finite"),
        (lambda: match(FOUR[:, 0, 0], FOUR[:, 0, 0]), r"use pool=1"),
        (lambda: arrange(EpochPlan(CODES[:1].view(1, 1, 1)), FOUR, CODES, [], []), r"plan of 1"),
        (lambda: match_epochs([FOUR[None]], []), r"1 epochs and labels of 0"),
        (lambda: match_epochs([FOUR[None]], [CODES]), r"expected \[U, B, \.\.\.\] and \[U, B\]"),
    ],
)
def test_what_cannot_be_matched_is_refused_in_one_line(call, said: str) -> None:
    with pytest.raises(InputError, match=said) as refused:
        call()
    assert "\n" not in str(refused.value)
