"""Active servers against literal readings of their papers, closed forms, and planted records."""

import json
from pathlib import Path

import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from leakgauge.core.types import Task
from leakgauge.data.fingerprints import fingerprint
from leakgauge.gradients import params_of
from leakgauge.inversion.exact_batch.layer import first_layer
from leakgauge.inversion.methods import Method, method_of, reported_traits
from leakgauge.inversion.metrics.table import COLUMNS, PSNR, RECOGNISABLE, RECORDS
from leakgauge.inversion.observed import AttackOptions, Knowledge, ObservedUpdates, Reconstruction
from leakgauge.inversion.report.by_scores import SOME_IMAGES, of_scores
from leakgauge.inversion.servers.catalog import SERVERS, server_of
from leakgauge.inversion.servers.curious import Curious
from leakgauge.inversion.servers.fished import isolated
from leakgauge.inversion.servers.fishing import Fishing, features_of, head_of
from leakgauge.inversion.servers.imprint import CONFIRMED, Imprint, read
from leakgauge.inversion.servers.quantile import Quantile
from leakgauge.inversion.servers.reading import ReadingLayer
from leakgauge.inversion.servers.robbing import Robbing
from leakgauge.inversion.servers.server import Server, ServerKnowledge
from leakgauge.results.measurements import Estimate, Measurement
from support.command import run

WIDTH, CLASSES, PUBLIC = 24, 3, 2000
LOW, HIGH = torch.tensor(0.0), torch.tensor(1.0)


def records(count: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, WIDTH, generator=generator)
    return x, torch.randint(CLASSES, (count,), generator=generator)


def network(seed: int = 0, hidden: int = 200) -> Task:
    torch.manual_seed(seed)
    layers = nn.Linear(WIDTH, hidden), nn.ReLU(), nn.Linear(hidden, CLASSES)
    return Task(nn.Sequential(*layers).eval())


def sent_by(server: Server, task: Task, batch: int, seed: int = 0) -> Task:
    x, y = records(PUBLIC, 1000 + seed)
    known = ServerKnowledge(x, y, LOW, HIGH, batch)
    return server.alter(task, known, torch.Generator().manual_seed(seed))


def update(task: Task, x: Tensor, y: Tensor) -> ObservedUpdates:
    params = params_of(task.model)
    leaves = {name: leaf.detach().clone().requires_grad_() for name, leaf in params.items()}
    loss = cross_entropy(torch.func.functional_call(task.model, leaves, (x,)), y)
    grads = torch.autograd.grad(loss, list(leaves.values()))
    stacked = {name: leaf[None] for name, leaf in zip(leaves, grads, strict=True)}
    return ObservedUpdates(params, stacked, tuple(x.shape))


def attack(method: Method, task: Task, seen: ObservedUpdates) -> Reconstruction:
    known = Knowledge(LOW, HIGH, guess=torch.full((WIDTH,), 0.5))
    return method.rebuild(task, seen, known, AttackOptions(0))


def found(rebuilt: Tensor, truth: Tensor) -> Tensor:
    """Return which true records are among the rebuilt ones, ``[B]``."""
    return torch.cdist(truth, rebuilt, p=float("inf")).amin(dim=1) < 1e-3


def confirmed(task: Task, seen: ObservedUpdates) -> Tensor:
    layer = first_layer(task, seen.params, torch.zeros(WIDTH))
    every = read(layer, task, seen, seen.grads)
    return every.x[every.confirmed].float()


def test_robbing_gives_the_records_that_are_alone_in_a_literal_bin() -> None:
    batch, shares = 16, []
    server = Robbing(bins=40)
    for seed in range(20):
        task = sent_by(server, network(seed), batch, seed)
        x, y = records(batch, seed)
        assert isinstance(task.model, ReadingLayer)
        weight, bias = task.model.reads.weight.detach(), task.model.reads.bias.detach()
        # The bin of a record: how many edges its measurement passes.
        bins = [int((-bias <= weight[0] @ one).sum()) for one in x]
        alone = torch.tensor([bins.count(one) == 1 for one in bins])
        rebuilt = attack(Imprint(), task, update(task, x, y)).x[0]
        assert torch.equal(found(rebuilt, x), alone)
        shares.append(float(alone.float().mean()))
    expected = (1 - 1 / 40) ** (batch - 1)
    count = round(sum(shares) * batch)
    assert stats.binomtest(count, 20 * batch, expected).pvalue > 1e-3


@pytest.mark.parametrize("server", [Curious(), Quantile()])
def test_a_unit_is_active_for_one_record_of_an_update_on_average(server: Server) -> None:
    task = sent_by(server, network(), 32)
    layer = task.model[0]  # type: ignore[index]
    fresh, _ = records(4000, 77)
    active = float((layer(fresh) > 0).float().mean())  # type: ignore[operator]
    assert active == pytest.approx(1 / 32, rel=0.15)


def test_trap_weights_are_those_of_the_paper() -> None:
    task = sent_by(Curious(scale=0.9), network(), 32)
    weight = task.model[0].weight.detach()  # type: ignore[index, union-attr]
    assert ((weight < 0).sum(dim=1) == WIDTH // 2).all()
    ratio = float(weight[weight > 0].mean() / -weight[weight < 0].mean())
    assert ratio == pytest.approx(0.9, rel=0.05)
    assert float(task.model[0].bias.detach().abs().max()) < 1e-6  # type: ignore[index, union-attr]


@pytest.mark.parametrize("server", [Curious(), Quantile()])
def test_single_units_give_exactly_the_records_that_reach_one_alone(server: Server) -> None:
    for seed in range(5):
        task = sent_by(server, network(seed), 16, seed)
        x, y = records(16, seed)
        active = task.model[0](x) > 0  # type: ignore[index, operator]
        alone = active[:, active.sum(dim=0) == 1].any(dim=1)
        rebuilt = attack(Imprint(), task, update(task, x, y)).x[0]
        assert torch.equal(found(rebuilt, x), alone)


def test_the_method_confirms_no_mixture_and_no_noise() -> None:
    for seed in range(20):
        task = sent_by(Quantile(), network(seed), 4, seed)  # many units see several records
        x, y = records(16, seed)
        seen = update(task, x, y)
        kept = confirmed(task, seen)
        assert len(kept)
        assert found(x, kept).all()
        generator = torch.Generator().manual_seed(seed)
        noise = {n: torch.randn(g.shape, generator=generator) for n, g in seen.grads.items()}
        assert not len(confirmed(task, ObservedUpdates(seen.params, noise, seen.shape)))
    assert CONFIRMED < 0.01


def test_labels_come_with_confirmed_records() -> None:
    task = sent_by(Robbing(), network(), 8)
    x, y = records(8, 3)
    rebuilt = attack(Imprint(), task, update(task, x, y))
    order = torch.cdist(x, rebuilt.x[0], p=float("inf")).argmin(dim=1)
    assert torch.equal(rebuilt.labels[0][order], y)


def body_gradient(task: Task, x: Tensor, y: Tensor) -> Tensor:
    """Return the gradient of the first layer, in float64: its square underflows in float32."""
    seen = update(task, x, y)
    return torch.cat([seen.grads[name].double().flatten() for name in ("0.weight", "0.bias")])


def cosine(one: Tensor, other: Tensor) -> float:
    return float((one / one.norm()) @ (other / other.norm()))


def test_the_body_s_gradient_is_that_of_the_class_alone() -> None:
    task = sent_by(Fishing(target=1), network(), 16)
    x, y = records(16, 5)
    whole, part = body_gradient(task, x, y), body_gradient(task, x[y == 1], y[y == 1])
    share = float((y == 1).float().mean())
    torch.testing.assert_close(whole, share * part, rtol=1e-4, atol=1e-6 * float(part.abs().max()))


def test_the_class_s_records_are_counted() -> None:
    task = sent_by(Fishing(target=1), network(), 16)
    for seed in range(5):
        x, y = records(16, seed)
        rebuilt = attack(method_of("fished", iterations=2), task, update(task, x, y))
        assert int((rebuilt.labels == 1).sum()) == int((y == 1).sum())
    assert isolated(torch.tensor([-2.2, 1e-30])).tolist() == [2, 1]


def test_an_unused_output_lets_the_record_of_the_largest_feature_through() -> None:
    torch.manual_seed(0)
    body = nn.Linear(WIDTH, 60), nn.ReLU(), nn.Linear(60, CLASSES + 1)
    honest = Task(nn.Sequential(*body).eval())
    task = sent_by(Fishing(), honest, 16)
    head = head_of(task, records(2, 0)[0])
    assert head.weight.abs().sum(dim=1).nonzero().flatten().tolist() == [CLASSES]
    singled = 0
    for seed in range(30):
        x, y = records(16, seed)
        logits = features_of(task, head, x) @ head.weight[CLASSES]
        order = logits.argsort(descending=True)
        if logits[order[0]] - logits[order[1]] < 7:  # the next record weighs 1/1000 or more
            continue
        alone = body_gradient(task, x[order[:1]], y[order[:1]])
        assert cosine(body_gradient(task, x, y), alone) > 0.99
        singled += 1
    assert singled >= 10
    x, y = records(16, 0)
    honest_whole = body_gradient(honest, x, y)
    each = [body_gradient(honest, x[i : i + 1], y[i : i + 1]) for i in range(16)]
    assert max(cosine(honest_whole, one) for one in each) < 0.9


@pytest.mark.parametrize("name", SERVERS)
def test_the_honest_model_stays_as_it_is(name: str) -> None:
    task, server = network(), server_of(name)
    before = fingerprint(dict(params_of(task.model)))
    assert server is not None
    sent = sent_by(server, task, 8)
    assert fingerprint(dict(params_of(task.model))) == before
    assert fingerprint(dict(params_of(sent.model))) != before


def figure(metric: str, value: float, chance: float, n: int = 64) -> Measurement:
    estimate = Estimate(value, value, value, n)
    words = "reconstruction", "", "pictures", "label", "", "none", "static", "fished", metric
    return Measurement(*words, "accumulated", 0, estimate, chance)


def test_the_verdict_counts_single_records_where_the_mean_hides_them() -> None:
    low = figure(PSNR, 12.4, 12.3)
    one = of_scores(low, None, None, figure(RECOGNISABLE, 1 / 64, 0.0), None)
    assert (one.level, one.words) == ("clear", SOME_IMAGES)
    none = of_scores(low, None, None, figure(RECOGNISABLE, 0.0, 0.0), None)
    assert none.level == "none"
    columns = figure(COLUMNS, 0.37, 0.37)
    rows = of_scores(None, columns, None, None, figure(RECORDS, 2 / 64, 0.0))
    assert (rows.level, rows.words) == ("clear", "Some records exact")
    guessed = of_scores(None, columns, None, None, figure(RECORDS, 2 / 64, 2 / 64))
    assert guessed.level == "none"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--server", "robing"), "server 'robing' is not known; did you mean 'robbing'?"),
        (("--server", "nobody"), "server 'nobody' is not known; known: 'honest', 'robbing'"),
        (("--server", "robbing:bins=1"), "bins is 1; expected 2 or more"),
        (("--server", "robbing", "--ladder"), "leave out --ladder"),
        (("--server", "robbing", "--epochs", "2"), "leave out --epochs"),
        (("--method", "fished"), "add --server fishing"),
        (("--server", "fishing:target=7"), "target is 7, and the network tells 2 classes"),
    ],
)
def test_a_wrong_server_is_refused_in_one_line(
    arguments: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    table = tmp_path / "rows.csv"
    table.write_text("a,b,label\n" + "".join(f"{i},{i % 7},{i % 2}\n" for i in range(60)))
    out = run("invert", str(table), "--label", "label", *arguments, "--out", str(tmp_path / "o"))
    assert out.returncode == 2
    assert said in out.stderr


def test_the_command_says_who_attacks_and_what_was_confirmed(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(400, 4, generator=generator)
    lines = [",".join(f"{v:.4f}" for v in row) + f",{i % 2}" for i, row in enumerate(rows.tolist())]
    table = tmp_path / "rows.csv"
    table.write_text("a,b,c,d,label\n" + "\n".join(lines) + "\n")
    out = run(
        *("invert", table, "--label", "label", "--server", "robbing", "--batch-size", 16),
        *("--images", 16, "--json", "--out", tmp_path / "o"),
    )
    text = json.dumps(json.loads(out.stdout))
    assert "an active server (robbing: it puts a linear layer before the network" in text
    assert "the gradient confirms" in text
    page = (tmp_path / "o" / "report.html").read_text()
    assert "imprint, server robbing" in page
    assert "leakgauge.guard" in page
    assert reported_traits("imprint, server curious:scale=0.9,units=20") == Imprint.traits
