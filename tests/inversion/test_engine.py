import copy
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from leakgauge.core.checks import InputError
from leakgauge.core.rng import torch_stream
from leakgauge.core.types import Grads, Task
from leakgauge.inversion.double_backward.gradients import differentiable_gradients
from leakgauge.inversion.search import distances
from leakgauge.inversion.search.engine import (
    draw_starts,
    objective_of,
    reconstruct,
    rescaled,
    search,
)
from leakgauge.inversion.search.layer_weights import DepthWeights, LayerWeights
from leakgauge.inversion.search.objective import Cosine, SquaredError
from leakgauge.inversion.search.presets import PRESETS, agic, preset, presets_for
from leakgauge.inversion.search.priors import total_variation
from leakgauge.inversion.search.settings import SearchSettings, factor
from leakgauge.inversion.search.simulate import LocalSteps, simulated_gradients
from leakgauge.models import initialise
from support.references import inversion as reference

LOW, HIGH = torch.tensor(-1.0), torch.tensor(1.0)
QUICK = SearchSettings(objective=Cosine(), iterations=12, boxed=True)


def task_of(*, smooth: bool = True, dtype=torch.float64) -> Task:
    act = nn.Tanh if smooth else nn.ReLU
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(
            *(nn.Conv2d(1, 6, 3, padding=1), act(), nn.Conv2d(6, 6, 3, 2, 1), act()),
            *(nn.Flatten(), nn.Linear(6 * 9, 4)),
        )
    return Task(model.to(dtype).eval(), F.cross_entropy)


def params_of(task: Task):
    return {name: value.detach() for name, value in task.model.named_parameters()}


def records(targets: int, batch: int, *, seed: int = 0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    x = 2 * torch.rand(targets, batch, 1, 6, 6, generator=generator, dtype=dtype) - 1
    return x, torch.randint(4, (targets, batch), generator=generator)


def seen(task, x, y):
    """The gradients of T batches, by the reference."""
    rows = [
        reference.gradient(task, params_of(task), one, of) for one, of in zip(x, y, strict=True)
    ]
    return {name: torch.stack([row[name].detach() for row in rows]) for name in rows[0]}


def rebuilt(task, x, y, settings, **given):
    given = {"labels": y, "seed": 0, "low": LOW, "high": HIGH, **given}
    return reconstruct(
        task, params_of(task), seen(task, x, y), settings, shape=tuple(x.shape[1:]), **given
    )


def psnr(found, truth):
    return -10 * torch.log10((found - truth).square().flatten(1).mean(1) / 4)


@pytest.mark.parametrize(
    "name",
    [
        "inverting-gradients",
        "leakgauge",
        "idlg",
        pytest.param("agic", marks=pytest.mark.slow),
        pytest.param("dlg", marks=pytest.mark.slow),
    ],
)
@pytest.mark.usefixtures("few_scales")
def test_known_records_come_back(name: str) -> None:
    task = task_of()
    x, y = records(2, 1)
    newton = {"iterations": 12, "restarts": 2, "start": "uniform"}  # Else it may run off.
    adam = {"iterations": 120, "total_variation": 0.0}
    found = rebuilt(task, x, y, preset(name, **(newton if name in ("dlg", "idlg") else adam)))
    assert (psnr(found.x, x) > 30).all(), psnr(found.x, x)
    assert (found.loss < 1e-3 * found.losses[:, 0]).all()


def test_labels_are_found_together_with_the_records() -> None:
    task = task_of()
    x, y = records(2, 1)
    found = rebuilt(task, x, y, preset("dlg", iterations=12, restarts=2), labels=None)
    assert found.labels.tolist() == y.tolist()
    assert (psnr(found.x, x) > 30).all(), psnr(found.x, x)


@pytest.mark.parametrize("objective", [SquaredError(), Cosine(), DepthWeights(), LayerWeights()])
def test_the_path_is_the_literal_one(objective) -> None:
    """Ten steps of one target by ``torch.optim.Adam`` on signs, clamped, double backward."""
    task = task_of(smooth=False)
    x, y = records(1, 2)
    start, _ = records(1, 2, seed=1)

    def weighted(ours, theirs):
        weights = objective.of(task.model)
        if isinstance(objective, LayerWeights):  # Convolutions of two parameters each.
            for layer in ("0", "2"):
                names = [f"{layer}.weight", f"{layer}.bias"]
                z = reference.zero_modifier([theirs[name] for name in names])
                weights |= {name: z * weights[name] for name in names}
        return reference.weighted_cosine(ours, theirs, weights)

    literal = {
        SquaredError: reference.squared_error,
        Cosine: reference.cosine,
    }.get(type(objective), weighted)
    settings = replace(QUICK, objective=objective, iterations=10, keep_best=False)
    found = rebuilt(task, x, y, settings, start=start)
    wanted = {name: value[0] for name, value in seen(task, x, y).items()}
    expected, losses = reference.signed_adam(
        *(task, params_of(task), start[0], y[0], wanted, literal),
        lr=0.1,
        iterations=10,
        rate=lambda at: factor("step-down", at, 10),
        low=-1.0,
        high=1.0,
    )
    torch.testing.assert_close(found.x[0], expected, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(found.losses[0, :10], torch.tensor(losses, dtype=torch.float64))


def test_total_variation_counts() -> None:
    task = task_of()
    x, y = records(1, 1)
    start, _ = records(1, 1, seed=1)
    plain = rebuilt(task, x, y, replace(QUICK, iterations=1), start=start)
    smooth = rebuilt(task, x, y, replace(QUICK, iterations=1, total_variation=0.5), start=start)
    expected = 0.5 * reference.total_variation(start[0, 0])
    assert float(smooth.losses[0, 0] - plain.losses[0, 0]) == pytest.approx(expected)


@pytest.mark.parametrize(
    "settings",
    [
        QUICK,
        replace(QUICK, restarts=2, patience=3, tolerance=0.2),
        preset("dlg-adam", iterations=8),
        preset("dlg", iterations=3, inner=4),
    ],
    ids=["plain", "restarts", "joint", "lbfgs"],
)
def test_targets_together_are_the_targets_one_by_one(settings: SearchSettings) -> None:
    task = task_of()
    x, y = records(3, 2)
    labels = None if settings.joint_labels else y
    whole = rebuilt(task, x, y, settings, labels=labels, seed=5)
    for at in range(3):
        one = slice(at, at + 1)
        given = None if labels is None else y[one]
        alone = rebuilt(task, x[one], y[one], settings, labels=given, seed=5, first_target=at)
        torch.testing.assert_close(alone.x[0], whole.x[at], rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(alone.restart_losses[0], whole.restart_losses[at])
        assert alone.iterations[0] == whole.iterations[at]


def test_another_seed_starts_elsewhere() -> None:
    task = task_of()
    x, y = records(1, 1)
    short = replace(QUICK, iterations=1)
    losses = {float(rebuilt(task, x, y, short, seed=seed).losses[0, 0]) for seed in (0, 0, 1)}
    assert len(losses) == 2


def test_the_restart_of_smallest_loss_is_kept_whatever_the_truth_is() -> None:
    """A loss that is smallest far from the truth: its minimiser is what comes back."""
    decoy = torch.full((1, 1, 4), 0.9)
    start = torch.stack([torch.zeros(1, 4), decoy[0], torch.full((1, 4), -0.9)])[None]

    def match(x, y, targets):
        return (x - decoy).square().flatten(1).mean(1)

    settings = replace(QUICK, restarts=3, iterations=1, lr=1e-3)
    found = search(match, settings, start, seed=0, labels=torch.zeros(1, 1, dtype=torch.int64),
                   low=LOW, high=HIGH)  # fmt: skip
    assert found.restart_losses.argmin() == 1
    torch.testing.assert_close(found.x, decoy)


def test_the_best_point_on_the_way_is_kept() -> None:
    def match(x, y, targets):
        return x.square().flatten(1).mean(1)

    settings = SearchSettings(optimizer="adam", lr=0.9, iterations=5, schedule="constant")
    labels, start = torch.zeros(1, 1, dtype=torch.int64), torch.full((1, 1, 1, 1), 1.0)
    best = search(match, settings, start, seed=0, labels=labels)
    last = search(match, replace(settings, keep_best=False), start, seed=0, labels=labels)
    assert float(best.loss) == pytest.approx(float(best.losses.min()))
    assert float(last.loss) == float(last.losses[0, -1]) > float(best.loss)
    for found in (best, last):
        torch.testing.assert_close(found.loss, match(found.x, None, None))


def test_a_restart_that_ends_in_no_number_is_never_kept() -> None:
    def match(x, y, rows):
        bad = torch.tensor([0.0, torch.nan])  # of the second restart
        return x.flatten(1).square().sum(1) + bad

    settings = SearchSettings(optimizer="adam", lr=0.1, iterations=3, restarts=2, keep_best=False)
    start = torch.ones(1, 2, 1, 1)
    found = search(match, settings, start, seed=0, labels=torch.zeros(1, 1, dtype=torch.int64))
    assert found.restart_losses.isnan().tolist() == [[False, True]]
    assert found.loss.isfinite().all()


def attacked(task: Task, wanted: Grads, shape: tuple[int, ...], y: torch.Tensor):
    given = {"shape": shape, "seed": 0, "labels": y, "low": LOW, "high": HIGH}
    return reconstruct(task, params_of(task), wanted, QUICK, **given)


def test_gradients_in_other_digits_than_the_weights_are_taken() -> None:
    """A client may send half of what it computed in."""
    task = task_of(dtype=torch.float32)
    x, y = records(1, 1, dtype=torch.float32)
    wanted = {name: leaf.half() for name, leaf in seen(task, x, y).items()}
    assert attacked(task, wanted, tuple(x.shape[1:]), y).x.dtype == torch.float32


def test_a_model_that_draws_random_numbers_is_refused() -> None:
    task = task_of()
    x, y = records(1, 1)
    wanted = {f"0.{name}": leaf for name, leaf in seen(task, x, y).items()}
    noisy = Task(nn.Sequential(task.model, nn.Dropout(0.5)), task.loss)
    with pytest.raises(InputError, match=r"draws random numbers .* call model.eval\(\) first"):
        attacked(noisy, wanted, tuple(x.shape[1:]), y)


@pytest.mark.parametrize("optimizer", ["signed-adam", "adam", "lbfgs"])
def test_a_loss_that_is_not_a_number_harms_no_other_row(optimizer) -> None:
    """Row 0 is NaN wherever x is below 0: it keeps its last good point, and row 1 its path."""

    def match(x, y, targets):
        bad = (targets == 0) & (x.flatten(1)[:, 0] < 0)
        return (x + 0.5).square().flatten(1).sum(1) * torch.where(bad, torch.nan, 1.0)

    settings = SearchSettings(optimizer=optimizer, lr=0.2, iterations=30, schedule="constant")
    labels, start = torch.zeros(2, 1, dtype=torch.int64), torch.full((2, 1, 1, 2), 0.5)
    found = search(match, settings, start, seed=0, labels=labels)
    assert found.x.isfinite().all()
    assert found.loss.isfinite().all()
    assert (found.x[0] >= 0).all()
    torch.testing.assert_close(found.x[1], torch.full((1, 2), -0.5), rtol=0, atol=0.1)


def test_a_row_at_rest_stays_and_says_so() -> None:
    """Row 0 has a slope, but too little of one: Adam moves it five times, and then no more."""

    def match(x, y, targets):
        size = x.flatten(1).sum(1)
        return torch.where(targets == 0, 1 + 1e-6 * size, size)

    settings = SearchSettings(optimizer="signed-adam", lr=1e-3, iterations=50, schedule="constant",
                        patience=4, keep_best=False)  # fmt: skip
    labels, start = torch.zeros(2, 1, dtype=torch.int64), torch.ones(2, 1, 1, 3)
    found = search(match, settings, start, seed=0, labels=labels)
    assert found.stopped_early.tolist() == [True, False]
    assert found.iterations.tolist() == [5, 50]
    torch.testing.assert_close(start[:, 0] - found.x, 1e-3 * torch.tensor([5.0, 50])[:, None, None]
                               .expand(2, 1, 3), rtol=1e-3, atol=0)  # fmt: skip


def test_curves_snapshots_and_progress() -> None:
    task = task_of()
    x, y = records(2, 1)
    told = []
    settings = replace(QUICK, iterations=202, restarts=2, keep_best=False, optimizer="adam")
    found = rebuilt(
        task, x, y, settings, snapshots=3, progress=lambda at, loss: told.append((at, loss))
    )
    assert (found.steps[0], found.steps[-1], len(found.steps)) == (0, 202, 200)
    assert found.losses.shape == (2, 200)
    assert found.snapshot_steps.tolist() == [0, 101, 202]
    torch.testing.assert_close(found.snapshots[:, -1], found.x)
    assert [at for at, _ in told] == list(range(202))
    assert (told[0][1] <= found.losses[:, 0]).all()
    assert found.seconds_per_iteration > 0


@pytest.mark.parametrize("fails", [False, True])
def test_the_callers_model_stays(fails: bool, monkeypatch) -> None:
    task = task_of()
    task.model.add_module("seen", nn.BatchNorm1d(4).double().eval())
    before = copy.deepcopy(task.model.state_dict())
    x, y = records(1, 1)
    wanted = seen(task, x, y)

    def stop(at, loss):
        if fails and at == 2:
            raise KeyboardInterrupt

    try:
        reconstruct(
            *(task, params_of(task), wanted, QUICK),
            shape=(1, 1, 6, 6),
            labels=y,
            low=LOW,
            high=HIGH,
            seed=0,
            progress=stop,
        )
    except KeyboardInterrupt:
        assert fails
    after = task.model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert all(value.grad is None for value in task.model.parameters())
    assert not any(module.training for module in task.model.modules())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in task.model.modules())


@pytest.mark.parametrize(("steps", "epochs"), [(1, 1), (4, 1), (2, 3)])
def test_simulation_is_the_clients_training(steps: int, epochs: int) -> None:
    task = task_of()
    x, y = records(2, 4)
    found = simulated_gradients(task, params_of(task), x, y, LocalSteps(steps, 0.3, epochs))
    for at in range(2):
        expected = reference.local_training(
            task, params_of(task), x[at], y[at], steps=steps, lr=0.3, epochs=epochs
        )
        for name, value in expected.items():
            torch.testing.assert_close(found[name][at], value, rtol=1e-9, atol=1e-12)


def test_one_simulated_step_is_the_plain_path() -> None:
    task = task_of()
    x, y = records(2, 2)
    plain, simulated = (
        rebuilt(task, x, y, QUICK, local=local) for local in (None, LocalSteps(1, 0.1))
    )
    torch.testing.assert_close(simulated.x, plain.x)


def test_simulation_is_differentiated_through_all_steps() -> None:
    task, local = task_of(), LocalSteps(2, 0.5)
    x, y = records(1, 2)
    wanted = seen(task, x, y)

    def value(x):
        return SquaredError()(simulated_gradients(task, params_of(task), x, y, local), wanted)

    start, _ = records(1, 2, seed=3)
    assert torch.autograd.gradcheck(value, start.requires_grad_())


@pytest.mark.usefixtures("few_scales")
def test_simulation_beats_the_approximation_where_steps_are_long() -> None:
    task, local = task_of(), LocalSteps(2, 1.0)
    x, y = records(2, 2)
    sent = [
        reference.local_training(task, params_of(task), one, of, steps=2, lr=1.0)
        for one, of in zip(x, y, strict=True)
    ]
    wanted = {name: torch.stack([row[name] for row in sent]) for name in sent[0]}
    given = {"shape": (2, 1, 6, 6), "labels": y, "low": LOW, "high": HIGH, "seed": 0}
    settings = preset("leakgauge", iterations=50, total_variation=0.0)
    near, far = (
        reconstruct(task, params_of(task), wanted, settings, **given, local=one)
        for one in (local, None)
    )
    assert near.loss.mean() < far.loss.mean() / 10


@pytest.mark.parametrize("per_record", [False, True])
def test_a_prior_of_each_record_adds_up_over_the_batch(per_record: bool) -> None:
    task = task_of()
    x, y = records(1, 4)
    wanted = seen(task, x, y)
    given = {"shape": (4, 1, 6, 6), "labels": y, "low": LOW, "high": HIGH, "seed": 0}
    losses = [
        reconstruct(
            task,
            params_of(task),
            wanted,
            preset("agic", iterations=1, total_variation=tv, prior_per_record=per_record),
            **given,
        ).losses[0, 0]
        for tv in (0.0, 0.5)
    ]
    begin = draw_starts(preset("agic"), (4, 1, 6, 6), targets=1, seed=0, like=x)
    mean = total_variation(begin[0]).mean()
    factor = 4 if per_record else 1
    torch.testing.assert_close(losses[1] - losses[0], 0.5 * factor * mean)


def test_a_prior_that_fades_weighs_more_at_first_alone() -> None:
    """The loss at the first iteration and of what is given back, term by term."""
    task = task_of()
    x, y = records(1, 2)
    chosen = preset("agic", iterations=6, total_variation=0.5, keep_best=False)
    given = {"shape": (2, 1, 6, 6), "labels": y, "low": LOW, "high": HIGH, "seed": 0}
    found = reconstruct(
        task, params_of(task), seen(task, x, y), replace(chosen, prior_first=7.0), **given
    )
    bare = replace(chosen, total_variation=0.0, iterations=1)
    begin = draw_starts(chosen, (2, 1, 6, 6), targets=1, seed=0, like=x)[0]
    for records_, weight, loss in ((begin, 3.5, found.losses[:, 0]), (found.x, 0.5, found.loss)):
        plain = reconstruct(
            task, params_of(task), seen(task, x, y), bare, **given, start=records_
        ).losses[:, 0]
        torch.testing.assert_close(loss - plain, weight * total_variation(records_))


@pytest.mark.parametrize("agree", [False, True])
def test_a_relative_prior_fades_no_further_than_the_objective(agree: bool) -> None:
    """The last loss, term by term, of gradients that come to agree, and of some that do not."""
    halves = torch.tensor([-1.0, -1.0, -1.0, 1.0, 1.0, 1.0])
    truth = halves * (0.5 if agree else 9.0)  # 9 is outside of the box.

    def distance(x: torch.Tensor, y: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        return (x - truth).square().mean((1, 2, 3, 4))

    chosen = preset(
        "leakgauge", iterations=200, total_variation=0.01, prior_first=5.0, keep_best=False
    )
    start = draw_starts(chosen, (1, 1, 6, 6), targets=1, seed=0, like=torch.zeros(1))
    given = {"labels": torch.zeros(1, 1, dtype=torch.int64), "low": LOW, "high": HIGH, "seed": 0}
    found = search(distance, chosen, start, **given)
    first, last = (float(distance(x, None, None)) for x in (start[0], found.x))
    assert (5 * last < first) == agree
    weight = 0.01 * max(first, 5 * last)
    wished = last + weight * float(total_variation(found.x[0]))
    assert float(found.loss) == pytest.approx(wished, rel=1e-5)
    assert float(total_variation(found.x[0])) > 0.1


def test_the_slope_of_a_relative_prior_takes_its_weight_as_given() -> None:
    task = task_of()
    x, y = records(1, 2)
    wanted = seen(task, x, y)
    chosen = preset(
        "leakgauge",
        iterations=1,
        total_variation=0.5,
        prior_first=3.0,
        prior_per_record=False,
        lr=0.01,
        schedule="constant",
        boxed=False,
        keep_best=False,
        rescale=False,
    )
    given = {"shape": (2, 1, 6, 6), "low": LOW, "high": HIGH, "seed": 0}
    found = reconstruct(task, params_of(task), wanted, chosen, labels=y, **given)
    begin = draw_starts(chosen, (2, 1, 6, 6), targets=1, seed=0, like=x)[:, 0].requires_grad_()
    measure = objective_of(chosen.objective, task.model)
    distance = measure(differentiable_gradients(task, params_of(task), begin, y), wanted)
    loss = distance + 1.5 * distance.item() * total_variation(begin[0]).mean()
    (slope,) = torch.autograd.grad(loss.sum(), begin)
    torch.testing.assert_close(found.x, begin.detach() - 0.01 * slope.sign())


def test_a_relative_prior_is_a_share_of_where_each_target_begins() -> None:
    """The mean over its restarts counts, so that these can be compared; other targets do not."""
    task = task_of()
    x, y = records(3, 2)
    wanted = seen(task, x, y)
    chosen = preset("leakgauge", iterations=1, restarts=2, total_variation=0.5, prior_first=1.0)
    chosen = replace(chosen, prior_per_record=False, rescale=False)
    assert chosen.prior_relative
    given = {"shape": (2, 1, 6, 6), "low": LOW, "high": HIGH, "seed": 0}
    plain, found = (
        reconstruct(task, params_of(task), wanted, settings, labels=y, **given)
        for settings in (replace(chosen, total_variation=0.0), chosen)
    )
    begin = draw_starts(chosen, (2, 1, 6, 6), targets=3, seed=0, like=x)
    distances = torch.stack(
        [
            reconstruct(
                *(task, params_of(task), wanted, replace(chosen, total_variation=0.0, restarts=1)),
                labels=y,
                start=begin[:, restart],
                **given,
            ).losses[:, 0]
            for restart in range(2)
        ],
        dim=1,
    )
    rough = total_variation(begin.flatten(0, 1)).view(3, 2)
    wished = distances + 0.5 * distances.mean(1, keepdim=True).maximum(distances) * rough
    assert plain.losses[:, 0].ne(found.losses[:, 0]).all()
    kept = found.restart_losses.argmin(1)
    torch.testing.assert_close(found.losses[:, 0], wished[torch.arange(3), kept])
    alone = reconstruct(
        *(task, params_of(task), {k: v[1:2] for k, v in wanted.items()}, chosen),
        labels=y[1:2],
        first_target=1,
        **given,
    )
    torch.testing.assert_close(alone.x, found.x[1:2])


@pytest.mark.parametrize("name", PRESETS)
def test_presets_say_what_the_papers_say(name: str) -> None:
    chosen = PRESETS[name]
    expected = {
        "dlg": ("lbfgs", SquaredError, True, 0.0, False, "constant"),
        "dlg-adam": ("adam", SquaredError, True, 0.0, False, "constant"),
        "idlg": ("lbfgs", SquaredError, False, 0.0, False, "constant"),
        "inverting-gradients": ("signed-adam", Cosine, False, 1e-4, True, "step-down"),
        "agic": ("adam", LayerWeights, False, 1e-4, False, "constant"),
    }
    if name in expected:
        assert expected[name] == (
            *(chosen.optimizer, type(chosen.objective), chosen.joint_labels),
            *(chosen.total_variation, chosen.boxed, chosen.schedule),
        )
    assert chosen.patience is None


@pytest.mark.parametrize(
    ("trained", "large", "smooth", "beta"),
    [
        (False, False, 1e-4, 50.0),
        (True, False, 1e-2, 2.0),
        (False, True, 1e-3, 50.0),
        (True, True, 1e-1, 2.0),
    ],
)
def test_agic_has_the_papers_settings_by_phase_and_network(
    trained: bool, large: bool, smooth: float, beta: float
) -> None:
    """Section V-A: the four weights of the total variation, beta, Adam's rate, the iterations."""
    each = presets_for(trained=trained, large=large)
    chosen = each["agic"]
    assert chosen == agic(trained=trained, large=large)
    baseline = each["inverting-gradients"]
    assert baseline == replace(PRESETS["inverting-gradients"], total_variation=smooth)
    assert (chosen.total_variation, chosen.objective) == (smooth, LayerWeights("linear", beta))
    assert (chosen.optimizer, chosen.lr, chosen.iterations) == ("adam", 0.1, 10_000)
    assert (chosen.prior_relative, chosen.prior_per_record) == (False, False)
    assert PRESETS["dlg-adam"].iterations == 10_000


REFUSED = {
    "no such parameter": lambda g: {**g, "0.weigth": g["0.weight"]},
    "is missing": lambda g: {name: value for name, value in g.items() if name != "5.bias"},
    "expected [T, *[4]]": lambda g: {**g, "5.bias": g["5.bias"][0]},
    "expected one number": lambda g: {**g, "5.bias": g["5.bias"].repeat(2, 1)},
    "target 0 is all zeros": lambda g: {name: 0 * value for name, value in g.items()},
    "target 0 is not finite": lambda g: {name: value * torch.nan for name, value in g.items()},
}


@pytest.mark.parametrize("message", REFUSED)
def test_gradients_that_do_not_fit_are_refused(message: str) -> None:
    task = task_of()
    x, y = records(1, 1)
    wanted = REFUSED[message](seen(task, x, y))
    with pytest.raises(InputError) as error:
        reconstruct(
            *(task, params_of(task), wanted, QUICK),
            shape=(1, 1, 6, 6),
            labels=y,
            low=LOW,
            high=HIGH,
            seed=0,
        )
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"labels": None}, "needs labels"),
        ({"labels": torch.tensor([[9]])}, "labels run from 9 to 9; the model has classes 0 to 3"),
        ({"labels": torch.tensor([[-1]])}, "classes 0 to 3"),
        ({"labels": torch.tensor([0])}, r"expected int64 \[1, 1\]"),
        ({"low": None}, "pass low and high"),
        ({"high": torch.ones(5)}, "expected it to broadcast"),
        ({"start": torch.zeros(1, 6, 6)}, r"start is \[1, 6, 6\]"),
        ({"shape": (1, 2, 6, 6)}, "the model refuses records"),
    ],
)
def test_what_does_not_fit_is_refused(given, message: str) -> None:
    task = task_of()
    x, y = records(1, 1)
    usual = {"shape": (1, 1, 6, 6), "labels": y, "low": LOW, "high": HIGH, "seed": 0}
    with pytest.raises(InputError, match=message):
        reconstruct(task, params_of(task), seen(task, x, y), QUICK, **{**usual, **given})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lr": 0.0}, "lr is 0"),
        ({"restarts": 0}, "number of restarts is 0"),
        ({"schedule": "stepdown"}, "did you mean 'step-down'"),
        ({"optimizer": "sgd"}, "optimizer is 'sgd'"),
        ({"total_variation": -1.0}, "total variation is -1"),
        ({"prior_first": 0.5}, "prior first is 0.5; expected a number from 1"),
        ({"optimizer": "lbfgs", "schedule": "cosine"}, "L-BFGS chooses its own steps"),
        ({"steps": 3}, "no setting 'steps'"),
    ],
)
def test_settings_are_refused(given, message: str) -> None:
    with pytest.raises(InputError, match=message):
        preset("agic", **given)


def test_an_unknown_attack_is_refused() -> None:
    with pytest.raises(InputError, match="attack 'aigc' is not known; did you mean 'agic'"):
        preset("aigc")


def test_the_engine_goes_by_the_fast_gradients(monkeypatch) -> None:
    """Nothing but ``differentiable_gradients`` is asked, so that its speed is the attack's."""
    calls = []

    def counted(*given, **named):
        calls.append(1)
        return differentiable_gradients(*given, **named)

    monkeypatch.setattr(distances, "differentiable_gradients", counted)
    task = task_of()
    rebuilt(task, *records(3, 1), replace(QUICK, restarts=2))
    assert len(calls) == QUICK.iterations + 2  # the last one tells how far the update is matched


def test_contrast_that_a_cosine_forgets_is_found_by_size() -> None:
    """Without biases and sure of a wrong answer: one direction for all contrasts."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 8, bias=False), nn.ReLU())
    model.append(nn.Linear(8, 3, bias=False))
    initialise(model.double(), "he", generator=torch_stream(0, "net"))
    with torch.no_grad():
        model[-1].weight.mul_(1e4)
    task = Task(model, F.cross_entropy)
    x = torch.randn(3, 1, 12, generator=torch_stream(0, "x"), dtype=torch.float64)
    with torch.no_grad():
        y = (model(x.flatten(0, 1)).argmax(1) + 1).remainder(3)[:, None]
    wanted = differentiable_gradients(task, params_of(task), x, y)
    wrong = torch.tensor([0.5, 1.0, 3.0], dtype=torch.float64)[:, None, None] * x
    assert Cosine()(differentiable_gradients(task, params_of(task), wrong, y), wanted).max() < 1e-12

    def gradients(x: torch.Tensor) -> Grads:
        return differentiable_gradients(task, params_of(task), x, y)

    found = rescaled(wrong, gradients, wanted, None)
    assert (found - x).norm() < 0.03 * x.norm()
    torch.testing.assert_close(found[1], x[1])
    most = 0.9 * x.abs().max()
    assert found.abs().max() > most >= rescaled(wrong, gradients, wanted, (-most, most)).abs().max()


def test_records_stay_as_they_are_where_no_size_fits() -> None:
    """Signs, for one, are far larger than any gradient: the nearest scale is the largest."""
    x = torch.rand(2, 1, 3, dtype=torch.float64) + 0.5

    def gradients(x: torch.Tensor) -> Grads:
        return {"w": x.flatten(1)}

    for far in (100.0, 0.01):
        seen = {"w": torch.tensor([[far], [2.0]]) * x.flatten(1)}
        found = rescaled(x, gradients, seen, None)
        assert torch.equal(found[0], x[0])
        torch.testing.assert_close(found[1], 2 * x[1], rtol=0.03, atol=0)


def test_records_stay_as_they_are_where_gradients_do_not_show_their_size() -> None:
    """As through BatchNorm in training mode: a factor of 0.7 fits best, and hardly better."""
    x = F.normalize(torch.rand(1, 1, 3, dtype=torch.float64), dim=-1)
    for share, scale in ((0.01, 1.0), (1.0, 0.7)):

        def gradients(x: torch.Tensor, share: float = share) -> Grads:
            return {"w": F.normalize(x.flatten(1)) + share * x.flatten(1)}

        found = rescaled(x, gradients, gradients(0.7 * x), None)
        torch.testing.assert_close(found, scale * x, rtol=0.03, atol=0)


@pytest.mark.usefixtures("few_scales")
def test_all_restarts_come_back_with_the_chosen_one_among_them() -> None:
    task = task_of()
    x, y = records(2, 2)
    chosen = replace(QUICK, restarts=3, rescale=True)
    found = rebuilt(task, x, y, chosen)
    assert found.restart_x.shape == (2, 3, 2, 1, 6, 6)
    assert found.restart_labels.tolist() == [[one.tolist()] * 3 for one in y]
    for target, best in enumerate(found.restart_losses.argmin(1)):
        torch.testing.assert_close(found.restart_x[target, best], found.x[target])
    alone = rebuilt(task, x, y, replace(chosen, restarts=1))
    assert alone.restart_x is None
    torch.testing.assert_close(found.restart_x[:, 0], alone.x)  # starts do not see each other
