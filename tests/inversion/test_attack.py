"""Updates of clients, knowledge of the attacker, and records over several epochs."""

import copy
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from leakgauge.core.checks import InputError
from leakgauge.core.types import Task
from leakgauge.defenses import parse_defense
from leakgauge.gradients import params_of
from leakgauge.inversion.epochs.epoch import Epoch, EpochPlan
from leakgauge.inversion.epochs.joint import joint_reconstruct
from leakgauge.inversion.search.engine import draw_starts
from leakgauge.inversion.search.objective import Cosine, SquaredError
from leakgauge.inversion.search.presets import preset
from leakgauge.inversion.search.priors import total_variation
from leakgauge.inversion.search.settings import SearchSettings
from leakgauge.training.client import Client
from leakgauge.training.sending import send
from support.attacks import attack_sent

LOW, HIGH = torch.tensor(-3.0), torch.tensor(3.0)
COSINE = SearchSettings(objective=Cosine(), iterations=2)
SQUARED = replace(COSINE, objective=SquaredError())
FAR = 0.5  # a learning rate at which the steps of a client differ from one another


def small_task(dtype: torch.dtype = torch.float64) -> Task:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Sequential(nn.Conv2d(1, 4, 3, 1, 1), nn.Tanh(), nn.Flatten(), nn.Linear(64, 3))
    return Task(layers.to(dtype).eval(), F.cross_entropy)


TASK = small_task()
PARAMS = params_of(TASK.model)


def people(clients: int, each: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(clients, each, 1, 4, 4, generator=generator, dtype=torch.float64)
    return x, torch.randint(3, (clients, each), generator=generator)


def literal_gradient(x: Tensor, y: Tensor, model: nn.Module = TASK.model) -> list[Tensor]:
    """Return the gradient of the mean loss from ``backward``."""
    own = copy.deepcopy(model)
    F.cross_entropy(own(x), y).backward()
    return [p.grad for p in own.parameters() if p.grad is not None]


def literal_sgd(batches: Sequence[tuple[Tensor, Tensor]], lr: float) -> list[Tensor]:
    """The weights before minus after, over rate and steps, of ``torch.optim.SGD``."""
    own = copy.deepcopy(TASK.model)
    optimizer = torch.optim.SGD(own.parameters(), lr=lr)
    for x, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(own(x), y).backward()
        optimizer.step()
    pairs = zip(TASK.model.parameters(), own.parameters(), strict=True)
    return [(old - new).detach() / (lr * len(batches)) for old, new in pairs]


def flat(leaves: Sequence[Tensor]) -> Tensor:
    return torch.cat([leaf.flatten() for leaf in leaves])


def row(grads, at: int) -> Tensor:
    return flat([leaf[at] for leaf in grads.values()])


def test_one_step_sends_the_gradient_of_the_mean_loss() -> None:
    x, y = people(3, 2)
    sent = send(TASK, PARAMS, x, y, Client(batch_size=2), seed=0)
    assert list(sent.grads) == [name for name, _ in TASK.model.named_parameters()]
    for at in range(3):
        torch.testing.assert_close(row(sent.grads, at), flat(literal_gradient(x[at], y[at])))
    assert sent.warnings() == ()


def test_local_steps_send_what_sgd_does_over_consecutive_batches() -> None:
    x, y = people(2, 6)
    client = Client(batch_size=2, local_steps=3, local_lr=FAR)
    sent = send(TASK, PARAMS, x, y, client, seed=0)
    for at in range(2):
        batches = [(x[at, i : i + 2], y[at, i : i + 2]) for i in (0, 2, 4)]
        wanted = flat(literal_sgd(batches, FAR))
        torch.testing.assert_close(row(sent.grads, at), wanted)
        # The order of the steps shows at this rate, so the line above has something to miss.
        assert (flat(literal_sgd(batches[::-1], FAR)) - wanted).norm() > 0.01 * wanted.norm()


def test_the_warning_fires_at_a_great_rate_alone() -> None:
    x, y = people(2, 4)
    quiet, loud = (
        send(TASK, PARAMS, x, y, Client(1, 4, lr), seed=0).warnings() for lr in (1e-5, FAR)
    )
    assert quiet == ()
    assert any("simulate the local steps" in line for line in loud)


def test_the_warning_is_of_the_client_that_is_furthest() -> None:
    x, y = people(2, 4)
    x[1] *= 30  # the weights of this client move further
    client = Client(1, 4, 0.01)
    alone = [send(TASK, PARAMS, x[i : i + 1], y[i : i + 1], client, seed=0) for i in (0, 1)]
    assert [bool(one.warnings()) for one in alone] == [False, True]
    for order in ([0, 1], [1, 0]):
        assert send(TASK, PARAMS, x[order], y[order], client, seed=0).warnings()


def test_rounding_is_reported_with_simulated_steps() -> None:
    """Going through the steps one by one does not bring back the digits of the weights."""
    task = small_task(torch.float32)
    x, y = (part[:, :2] for part in people(1, 2))
    sent = send(task, params_of(task.model), x.float(), y, Client(1, 2, 1e-8), seed=0)
    (said,) = sent.warnings(simulated=True)
    assert "near their rounding" in said


def test_clipping_and_noise_are_those_of_dp_sgd() -> None:
    x, y = people(2, 3)
    limit, noise = 0.3, 0.2

    def sent(text: str, seed: int = 0) -> Tensor:
        client = Client(3, defense=parse_defense(text, batch_size=3))
        grads = send(TASK, PARAMS, x, y, client, seed=seed).grads
        return torch.stack([row(grads, at) for at in range(2)])

    clipped = []
    for at in range(2):
        each = [flat(literal_gradient(x[at, i : i + 1], y[at, i : i + 1])) for i in range(3)]
        assert max(float(one.norm()) for one in each) > limit  # something is clipped
        shrunk = [one * min(1.0, limit / float(one.norm())) for one in each]
        clipped.append(torch.stack(shrunk).mean(dim=0))
    torch.testing.assert_close(sent(f"clip:l2={limit}"), torch.stack(clipped))
    private = f"dpsgd:clip={limit},noise={noise}"
    added = sent(private) - torch.stack(clipped)
    # Of 2 x 235 normal draws the spread is within 5 of its own standard errors.
    assert added.std() == pytest.approx(noise / 3**0.5, rel=5 / (2 * added.numel()) ** 0.5)
    assert not torch.equal(added[0], added[1])
    assert torch.equal(sent(private), sent(private))
    assert not torch.equal(sent(private), sent(private, seed=1))


@pytest.mark.parametrize("steps", [1, 2])
def test_pruning_and_signs_act_on_what_is_sent(steps: int) -> None:
    x, y = people(1, 2 * steps)
    batches = list(zip(x[0].split(2), y[0].split(2), strict=True))
    plain = flat(literal_gradient(*batches[0]) if steps == 1 else literal_sgd(batches, FAR))

    def sent(text: str) -> Tensor:
        client = Client(2, steps, FAR, parse_defense(text, batch_size=2))
        return row(send(TASK, PARAMS, x, y, client, seed=0).grads, 0)

    pruned = sent("prune:rate=0.9,whole=1")
    kept = plain.abs().argsort(descending=True)[: int((pruned != 0).sum())]
    assert len(kept) == pytest.approx(0.1 * len(plain), abs=1)
    wanted = torch.zeros_like(plain)
    wanted[kept] = plain[kept]
    torch.testing.assert_close(pruned, wanted)
    torch.testing.assert_close(sent("sign").sign(), plain.sign())
    assert len(sent("sign").abs().unique()) == 1


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"batch_size": 0}, "batch size is 0"),
        ({"local_steps": 0}, "number of local steps is 0"),
        ({"local_lr": -1.0}, "local learning rate is -1"),
        ({"defense": parse_defense("perturb", batch_size=1)}, "learnt from public gradients"),
        ({"defense": parse_defense("vib", batch_size=1)}, "no attack rebuilds records through it"),
        (
            {"defense": parse_defense("dpsgd", batch_size=1), "local_steps": 2},
            "take --local-steps 1 or another --defense",
        ),
    ],
)
def test_a_client_that_cannot_be_is_refused(given: dict, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        Client(**given)


def told(x: Tensor, y: Tensor, settings: SearchSettings, client: Client, **known):
    """Attack what ``x`` and ``y`` make clients send."""
    sent = send(TASK, PARAMS, x, y, client, seed=0)
    given = (TASK, PARAMS, sent, settings, client, (LOW, HIGH))
    return attack_sent(*given, record=(1, 4, 4), seed=3, **known), sent


def start_of(settings: SearchSettings, clients: int, each: int) -> Tensor:
    """Where the search of ``told`` begins, ``[T, B, ...]``."""
    shape = (each, 1, 4, 4)
    like = next(iter(PARAMS.values()))
    return draw_starts(settings, shape, targets=clients, seed=3, like=like)[:, 0]


def test_the_objective_compares_the_gradients_of_the_guess_with_what_was_sent() -> None:
    x, y = people(2, 2)
    found, sent = told(x, y, SQUARED, Client(2), labels=y)
    start = start_of(SQUARED, 2, 2)
    for at in range(2):
        wanted = (flat(literal_gradient(start[at], y[at])) - row(sent.grads, at)).square().sum()
        torch.testing.assert_close(found.losses[at, 0], wanted)


@pytest.mark.parametrize("simulate", [True, False])
def test_local_steps_are_simulated_where_asked_for_and_else_one_batch(simulate: bool) -> None:
    x, y = people(2, 4)
    found, sent = told(x, y, SQUARED, Client(2, 2, FAR), labels=y, simulate=simulate)
    start = start_of(SQUARED, 2, 4)
    for at in range(2):
        batches = list(zip(start[at].split(2), y[at].split(2), strict=True))
        played = literal_sgd(batches, FAR) if simulate else literal_gradient(start[at], y[at])
        wanted = (flat(played) - row(sent.grads, at)).square().sum()
        torch.testing.assert_close(found.losses[at, 0], wanted)


def test_an_attacker_who_knows_of_noise_weighs_the_whole_update_alike() -> None:
    x, y = people(2, 1)
    client = Client(defense=parse_defense("noise:std=0.3", batch_size=1))
    start = start_of(COSINE, 2, 1)
    static, adaptive = (told(x, y, COSINE, client, labels=y, defense=d) for d in (False, True))
    for at in range(2):
        guess, seen = flat(literal_gradient(start[at], y[at])), row(static[1].grads, at)
        cosine = 1 - F.cosine_similarity(guess, seen, dim=0)
        torch.testing.assert_close(static[0].losses[at, 0], cosine)
        relative = (guess - seen).square().sum() / seen.square().sum()
        torch.testing.assert_close(adaptive[0].losses[at, 0], relative)


def test_noise_is_measured_against_what_the_client_sent() -> None:
    """A change of weights is a rate times as long as the gradient that it is read as."""
    faint = parse_defense("noise:std=0.001", batch_size=1)
    one, steps = Client(1, defense=faint), Client(1, 2, 1e-4, defense=faint)
    first = {}
    for client in (one, steps):
        x, y = people(2, client.records)
        told_of = [told(x, y, COSINE, client, labels=y, defense=d)[0] for d in (False, True)]
        first[client.steps] = [found.losses[:, 0].tolist() for found in told_of]
    assert first[1][0] == first[1][1], "faint noise in a gradient"
    assert first[2][0] != first[2][1], "the same noise drowns a short change"


@pytest.mark.parametrize("text", ["sign", "prune:rate=0.9,whole=1"])
def test_an_attacker_who_knows_of_signs_or_pruning_changes_its_objective_once(text: str) -> None:
    x, y = people(2, 1)
    client = Client(defense=parse_defense(text, batch_size=1))
    found, sent = told(x, y, COSINE, client, labels=y, defense=True)
    start = start_of(COSINE, 2, 1)
    for at in range(2):
        each = literal_gradient(start[at], y[at])
        guess, seen = flat(each), row(sent.grads, at)
        if text == "sign":
            left = flat([torch.tanh(leaf / (0.5 * leaf.abs().mean())) for leaf in each])
        else:
            kept = guess * (seen != 0)
            limit = seen[seen != 0].abs().min() * kept.norm() / seen.norm()
            beyond = guess.sign() * (guess.abs() - limit).clamp(min=0)
            left = torch.where(seen != 0, guess, beyond)
        cosine = 1 - F.cosine_similarity(left, seen, dim=0)
        torch.testing.assert_close(found.losses[at, 0], cosine)


def test_granted_labels_are_used_as_they_are_and_inferred_ones_come_from_the_gradient() -> None:
    x, y = people(4, 1)
    wrong = (y + 1) % 3
    inferred, granted = told(x, y, COSINE, Client()), told(x, y, COSINE, Client(), labels=wrong)
    assert torch.equal(inferred[0].labels, y)  # idlg is exact for one record
    assert torch.equal(granted[0].labels, wrong)
    assert not torch.equal(inferred[0].x, granted[0].x)


def test_labels_that_are_granted_are_not_searched_for() -> None:
    x, y = people(2, 1)
    settings = preset("dlg-adam", iterations=2)
    searched, granted = told(x, y, settings, Client()), told(x, y, settings, Client(), labels=y)
    assert torch.equal(granted[0].labels, y)
    start = start_of(settings, 2, 1)
    for at in range(2):
        fixed = (flat(literal_gradient(start[at], y[at])) - row(granted[1].grads, at)).square()
        torch.testing.assert_close(granted[0].losses[at, 0], fixed.sum())
        assert not torch.isclose(searched[0].losses[at, 0], fixed.sum())


def test_the_box_is_the_attacker_s() -> None:
    x, y = people(2, 1)
    sent = send(TASK, PARAMS, x, y, Client(), seed=0)
    low, high = torch.tensor(-0.2), torch.full((1, 4, 4), 0.1)
    settings = replace(COSINE, boxed=True, keep_best=False)
    given = (TASK, PARAMS, sent, settings, Client(), (low, high))
    found = attack_sent(*given, record=(1, 4, 4), seed=3, labels=y)
    assert found.x.min() == pytest.approx(-0.2)
    assert found.x.max() == pytest.approx(0.1)


PLAN = EpochPlan(torch.tensor([[[0, 1], [2, 3]], [[3, 0], [1, 2]]]))


def two_epochs() -> tuple[list[Epoch], Tensor, Tensor, list[nn.Module]]:
    """Four records, dealt as ``PLAN`` says, at two points of training."""
    x, y = (values.flatten(0, 1) for values in people(2, 2, seed=1))
    later = copy.deepcopy(TASK.model)
    with torch.no_grad():
        for value in later.parameters():
            value += 0.1
    models = [TASK.model, later]
    epochs = []
    for model, updates in zip(models, PLAN.members.tolist(), strict=True):
        rows = [literal_gradient(x[one], y[one], model) for one in updates]
        names = [name for name, _ in model.named_parameters()]
        stacked = [torch.stack(leaves) for leaves in zip(*rows, strict=True)]
        grads = dict(zip(names, stacked, strict=True))
        epochs.append(Epoch.of_one_model(params_of(model), grads))
    return epochs, x, y, models


def joint(settings: SearchSettings, epochs: Sequence[Epoch], labels: Tensor, **given):
    return joint_reconstruct(
        TASK, epochs, PLAN, settings,
        labels=labels, record=(1, 4, 4), low=LOW, high=HIGH, seed=3, **given,
    )  # fmt: skip


@pytest.mark.parametrize("weights", [None, (1.0, 3.0)])
def test_the_joint_objective_sums_over_the_updates_of_all_epochs(
    weights: tuple[float, float] | None,
) -> None:
    epochs, _, y, models = two_epochs()
    found = joint(SQUARED, epochs, y, weights=weights)
    (start,) = start_of(SQUARED, 1, 4)
    wanted = 0.0
    for at, (model, epoch) in enumerate(zip(models, epochs, strict=True)):
        share = 1.0 if weights is None else weights[at]
        for update, members in enumerate(PLAN.members[at].tolist()):
            guess = flat(literal_gradient(start[members], y[members], model))
            wanted += share / 2 * float((guess - row(epoch.grads, update)).square().sum())
    assert float(found.losses[0, 0]) == pytest.approx(wanted)


def test_the_joint_search_ends_at_the_records_in_the_plan_s_order() -> None:
    epochs, x, y, _ = two_epochs()
    settings = preset("dlg", iterations=20)
    found = joint(settings, epochs, y)
    assert list(found.x.shape) == [1, 4, 1, 4, 4]
    torch.testing.assert_close(found.x[0], x, atol=1e-3, rtol=0)
    swapped = EpochPlan(PLAN.members[[0, 0]])  # the second epoch is taken for the first
    lost = joint_reconstruct(
        TASK, epochs, swapped, settings,
        labels=y, record=(1, 4, 4), low=LOW, high=HIGH, seed=3,
    )  # fmt: skip
    assert (lost.x[0] - x).abs().max() > 0.1


def test_a_joint_search_begins_at_the_given_start() -> None:
    epochs, x, y, _ = two_epochs()
    found = joint(replace(SQUARED, iterations=1), epochs, y, start=x[None])
    assert float(found.losses[0, 0]) == pytest.approx(0, abs=1e-20)
    with pytest.raises(InputError, match=r"start is \[4, 1, 4, 4\]; expected \[1, 4, 1, 4, 4\]"):
        joint(SQUARED, epochs, y, start=x)


def test_a_prior_of_each_record_counts_those_of_an_update() -> None:
    epochs, _, y, _ = two_epochs()
    chosen = replace(COSINE, iterations=1, prior_per_record=True)
    plain, smooth = (
        joint(replace(chosen, total_variation=weight), epochs, y).losses[0, 0]
        for weight in (0.0, 0.5)
    )
    rough = total_variation(start_of(COSINE, 1, 4))
    torch.testing.assert_close((smooth - plain)[None], 0.5 * 2 * rough.to(plain))


def test_jointly_rebuilt_records_are_rescaled_update_by_update() -> None:
    """The updates of the first epoch decide: all records of one have the same factor, if any."""
    epochs, _, y, models = two_epochs()
    chosen = replace(COSINE, iterations=10, boxed=False)
    plain, scaled = (joint(replace(chosen, rescale=on), epochs, y).x[0] for on in (False, True))
    for update, members in enumerate(PLAN.members[0].tolist()):
        ratios = scaled[members] / plain[members]
        assert float(ratios.max() - ratios.min()) < 1e-4
        assert abs(float(ratios.mean()) - 1) > 0.04
        off = [
            (
                flat(literal_gradient(x[members], y[members], models[0]))
                - row(epochs[0].grads, update)
            )
            for x in (plain, scaled)
        ]
        assert off[1].square().sum() < off[0].square().sum()


def test_a_joint_search_of_other_epochs_or_records_than_planned_is_refused() -> None:
    epochs, _, y, _ = two_epochs()
    for given, reason in (
        ((epochs[:1], y, None), "the plan is of 2 epochs, 1 came with 1 weights"),
        ((epochs, y, (1.0,)), "2 came with 1 weights"),
        ((epochs, y[:3], None), "the plan is of 4 records, 3 labels came"),
    ):
        with pytest.raises(InputError, match=reason):
            joint(COSINE, given[0], given[1], weights=given[2])
