"""Rows of a table, rebuilt by a pooled ensemble: parts against literal versions, and runs."""

import json
import math
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream, torch_stream
from leakgauge.core.types import Column, Grads, Schema, Task
from leakgauge.data.decode import column_hits
from leakgauge.gradients import batch_gradients, params_of
from leakgauge.inversion.methods import TABLE, method_of, refuse_tables_only
from leakgauge.inversion.observed import AttackOptions, Knowledge, ObservedUpdates, Reconstruction
from leakgauge.inversion.report.records import read_rows
from leakgauge.inversion.run.answering import rebuild
from leakgauge.inversion.run.attempt import Attempt, attempts_of
from leakgauge.inversion.run.kept import keep_records
from leakgauge.inversion.run.measuring import measurements_of
from leakgauge.inversion.run.preparing import prepare
from leakgauge.inversion.run.rebuilt import Rebuilt
from leakgauge.inversion.run.scenario import Scenario
from leakgauge.inversion.spec import InversionSpec
from leakgauge.inversion.tableak.accuracy import cells_right, random_rows, sure_cells
from leakgauge.inversion.tableak.cells import hardened, relaxed, same_cells
from leakgauge.inversion.tableak.method import TabLeak
from leakgauge.inversion.tableak.pooling import aligned, confidence_of, pooled
from leakgauge.models import mlp
from leakgauge.runs.spec import make_spec
from support.command import run
from support.sources import people, pictures, table_source

TOWNS, JOBS = 3, 5
SCHEMA = Schema(
    (
        Column("age", "number", 0, 1, mean=40.0, scale=10.0),
        Column("town", "category", 1, 4, ("a", "b", "c")),
        Column("pay", "number", 4, 6, missing=True),
        Column("job", "category", 6, 11, ("v", "w", "x", "y"), missing=True),
    ),
    "y",
    (),
    {},
)
WIDTH = 11
LOW = torch.tensor([-2.0, 0, 0, 0, -1.5, 0, 0, 0, 0, 0, 0])
HIGH = torch.tensor([2.0, 1, 1, 1, 2.5, 1, 1, 1, 1, 1, 1])


def rows(count: int, *, seed: int = 0) -> Tensor:
    """Return encoded rows of the made table."""
    rng = stream(seed, "rows")
    missing = rng.random(count) < 0.2
    pay = np.where(missing, 0.0, rng.uniform(-1.5, 2.5, count))
    columns = [
        rng.uniform(-2, 2, count)[:, None],
        np.eye(TOWNS)[rng.integers(TOWNS, size=count)],
        pay[:, None],
        missing[:, None],
        np.eye(JOBS)[rng.integers(JOBS, size=count)],
    ]
    return torch.from_numpy(np.hstack(columns)).float()


def net(*, seed: int = 0, width: int = WIDTH, hidden: tuple[int, ...] = (60, 20)) -> Task:
    return Task(mlp(width, 2, hidden, generator=torch_stream(seed, "model")), cross_entropy)


def attacked(
    x: Tensor,
    y: Tensor,
    *,
    grads: Grads | None = None,
    schema: Schema = SCHEMA,
    limits: tuple[Tensor, Tensor] = (LOW, HIGH),
    first: int = 0,
    **settings,
) -> Reconstruction:
    """Return what the method rebuilds of batches ``[T, B, D]`` from their gradients."""
    task = net(width=x.shape[-1])
    params = params_of(task.model)
    seen = batch_gradients(task, params, x, y) if grads is None else grads
    method = TabLeak(**{"members": 8, "iterations": 400, **settings})
    known = Knowledge(*limits, labels=y, schema=schema)
    options = AttackOptions(seed=0, first_target=first)
    return method.rebuild(task, ObservedUpdates(params, seen, tuple(x.shape[1:])), known, options)


def staged(frame: pd.DataFrame, **settings) -> tuple[Scenario, Attempt]:
    common = {"data": "people", "label": "income", "images": 4, "batch_size": 2, "iterations": 3}
    spec = make_spec(InversionSpec, {**common, "method": "tableak:members=3", **settings})
    prepared = prepare(spec, table_source(frame))
    return prepared.scenario, attempts_of(prepared.spec)[0]


# --- the parts, against literal versions ---------------------------------------------------


def test_relaxed_rows_are_nearly_rows_of_the_table() -> None:
    z = 3 * torch.randn(50, WIDTH, generator=torch_stream(0, "z"), dtype=torch.float64)
    x = relaxed(z, SCHEMA, LOW, HIGH)
    for row, found in zip(z.tolist(), x.tolist(), strict=True):
        for at in (0, 4, 5):
            low, high = float(LOW[at]), float(HIGH[at])
            assert found[at] == pytest.approx(low + (high - low) / (1 + math.exp(-row[at])))
        for first, last in ((1, 4), (6, 11)):
            total = sum(math.exp(value) for value in row[first:last])
            wanted = [math.exp(value) / total for value in row[first:last]]
            assert found[first:last] == pytest.approx(wanted)


def test_hard_rows_can_be_rows_of_the_table() -> None:
    hard = hardened(relaxed(5 * torch.randn(200, WIDTH), SCHEMA, LOW, HIGH), SCHEMA)
    flags = hard[:, [1, 2, 3, 5, 6, 7, 8, 9, 10]]
    assert set(flags.unique().tolist()) <= {0.0, 1.0}
    assert (hard[:, 1:4].sum(1) == 1).all()
    assert (hard[hard[:, 5] == 1, 4] == 0).all()
    assert torch.equal(hardened(rows(30), SCHEMA), rows(30))


def test_cells_agree_where_decoded_columns_do() -> None:
    """Against the decoding of the whole table by pandas."""
    truth, other = rows(300), rows(300, seed=1)
    other[:100, 0] = truth[:100, 0] + torch.linspace(-0.6, 0.6, 100)
    truth[7, 6:11] = 0  # an unknown category
    wanted = column_hits(other, truth, SCHEMA, tolerance=0.319)
    found = same_cells(other, truth, SCHEMA)
    for at, name in enumerate(("age", "town", "pay", "job")):
        assert found[:, at].tolist() == wanted[name].tolist(), name


def test_members_come_in_the_order_with_fewest_different_cells() -> None:
    """Against all orders of four rows; labels stay with their rows."""
    best, labels = rows(4), torch.tensor([0, 1, 0, 1])
    for seed in range(20):
        member = rows(4, seed=seed + 1)
        own = [
            order
            for order in permutations(range(4))
            if all(labels[a] == labels[b] for a, b in enumerate(order))
        ]
        least = min(int((~same_cells(member[list(o)], best, SCHEMA)).sum()) for o in own)
        (found,) = aligned(member[None], best, labels, SCHEMA)
        assert int((~same_cells(found, best, SCHEMA)).sum()) == least
        order = torch.cdist(found, member).argmin(1)
        assert torch.equal(labels[order], labels)


@pytest.mark.parametrize("count", [1, 4, 7])
def test_pooling_and_confidence_are_those_of_a_literal_version(count: int) -> None:
    z = 2 * torch.randn(count, 6, WIDTH, generator=torch_stream(0, "z"), dtype=torch.float64)
    members = relaxed(z, SCHEMA, LOW, HIGH)
    batch, sure = pooled(members, SCHEMA), confidence_of(members, SCHEMA)
    for row in range(6):
        medians = [float(np.median(members[:, row, at])) for at in range(WIDTH)]
        for first, last in ((1, 4), (6, 11)):
            total = sum(medians[first:last])
            assert batch[row, first:last].tolist() == pytest.approx(
                [value / total for value in medians[first:last]]
            )
            mean = [float(members[:, row, at].mean()) for at in range(first, last)]
            entropy = -sum(share * math.log(share) for share in mean) / math.log(last - first)
            assert float(sure[row, 1 if first == 1 else 3]) == pytest.approx(1 - entropy)
        for place, at in ((0, 0), (2, 4)):
            assert float(batch[row, at]) == pytest.approx(medians[at])
            if count == 1:
                assert sure[row, place] == 0
                continue
            spread = float(np.std(members[:, row, at].numpy(), ddof=1))
            chance = math.erf(0.319 / spread / math.sqrt(2))
            assert float(sure[row, place]) == pytest.approx(chance)


def test_members_that_agree_nowhere_are_pooled_by_their_mean() -> None:
    hot = torch.eye(3, dtype=torch.float64)[:, None]
    schema = Schema((Column("town", "category", 0, 3, ("a", "b", "c")),), "y", (), {})
    assert pooled(hot, schema).tolist() == [pytest.approx([1 / 3] * 3)]
    assert float(confidence_of(hot, schema)) == pytest.approx(0)


def test_right_cells_are_counted_in_the_best_order() -> None:
    """Against all orders of four rows."""
    for seed in range(20):
        x, truth = rows(4, seed=seed), rows(4, seed=seed + 100)
        most = max(
            int(same_cells(x[list(order)], truth, SCHEMA).sum()) for order in permutations(range(4))
        )
        hits, order = cells_right(x[None], truth[None], SCHEMA)
        assert int(hits.sum()) == most
        assert torch.equal(hits[0], same_cells(x[order[0]], truth, SCHEMA))


def test_the_random_guess_has_the_columns_of_the_public_rows() -> None:
    public = rows(400)
    drawn = random_rows(public, torch.Size((50, 40)), SCHEMA, seed=0).flatten(0, 1)
    assert torch.allclose(drawn.mean(0), public.mean(0), atol=0.12)
    joint = (public[:, :4, None] * public[:, None, :4]).mean(0)[1, 1]
    assert joint == public[:, 1].mean()  # a column stays whole
    assert torch.equal(hardened(drawn, SCHEMA), drawn)


def test_the_most_confident_quarter_is_right_where_confidence_says_so() -> None:
    sure = torch.rand(3, 50, generator=torch_stream(0, "sure"))
    hits = sure > 0.5
    found = sure_cells(hits, sure)
    for at in range(3):
        ranked = sorted(range(50), key=lambda one, at=at: -float(sure[at, one]))
        assert float(found.most[at]) == hits[at, ranked[:13]].double().mean()
        assert float(found.least[at]) == hits[at, ranked[-13:]].double().mean()


# --- the method ------------------------------------------------------------------------------


def test_a_planted_batch_is_rebuilt_and_the_method_is_sure() -> None:
    x, y = rows(3)[None], torch.tensor([[0, 1, 0]])
    found = attacked(x, y, iterations=800)
    hits, order = cells_right(found.x, x, SCHEMA)
    assert hits.double().mean() >= 0.9
    assert found.matched is not None
    assert float(found.matched) > 0.95
    assert found.confidence is not None
    towns = found.confidence[0, order[0]][hits[0, :, 1], 1]
    assert towns.mean() > 0.8
    assert torch.equal(hardened(found.x, SCHEMA), found.x)


def test_a_gradient_without_information_gives_low_confidence_and_the_accuracy_of_a_guess() -> None:
    """Noise in place of the gradient: members end anywhere."""
    x, y = rows(8)[None], torch.tensor([[0, 1] * 4])
    shapes = {name: leaf.shape for name, leaf in params_of(net().model).items()}
    noise = {
        name: torch.randn(1, *shape, generator=torch_stream(0, name))
        for name, shape in shapes.items()
    }
    blind, seeing = attacked(x, y, grads=noise, iterations=150), attacked(x, y, iterations=150)
    assert blind.confidence is not None
    assert seeing.confidence is not None
    assert blind.confidence.mean() < 0.5
    assert seeing.confidence.mean() > blind.confidence.mean() + 0.2
    share = float(cells_right(blind.x, x, SCHEMA)[0].double().mean())
    guesses = [
        random_rows(rows(400, seed=9), torch.Size((1, 8)), SCHEMA, seed=seed) for seed in range(40)
    ]
    scores = [float(cells_right(one, x, SCHEMA)[0].double().mean()) for one in guesses]
    assert abs(share - np.mean(scores)) < 4 * np.std(scores)
    assert float(cells_right(seeing.x, x, SCHEMA)[0].double().mean()) > max(scores)


def test_a_gradient_of_zeros_is_refused() -> None:
    x, y = rows(2)[None], torch.tensor([[0, 1]])
    zeros = {name: torch.zeros(1, *leaf.shape) for name, leaf in params_of(net().model).items()}
    with pytest.raises(InputError, match="zero"):
        attacked(x, y, grads=zeros)


def test_one_batch_gives_what_it_gives_among_many() -> None:
    x = torch.stack([rows(3, seed=seed) for seed in range(2)])
    y = torch.tensor([[0, 1, 1], [1, 0, 1]])
    together = attacked(x, y, iterations=30, members=4)
    for at in range(2):
        alone = attacked(x[at : at + 1], y[at : at + 1], first=at, iterations=30, members=4)
        torch.testing.assert_close(alone.x[0], together.x[at], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(
            alone.confidence[0], together.confidence[at], atol=1e-3, rtol=1e-3
        )


def test_the_pooled_rows_do_not_depend_on_the_truth_s_order() -> None:
    x, y = rows(4)[None], torch.tensor([[1, 1, 1, 1]])
    one, other = attacked(x, y, iterations=30), attacked(x.flip(1), y, iterations=30)
    torch.testing.assert_close(one.x, other.x, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("kind", ["number", "category"])
def test_a_table_of_one_kind_of_column(kind: str) -> None:
    width = 4
    names = ("a", "b")
    columns = (
        tuple(Column(f"c{at}", "number", at, at + 1) for at in range(width))
        if kind == "number"
        else (Column("c", "category", 0, 2, names), Column("d", "category", 2, 4, names))
    )
    schema = Schema(columns, "y", (), {})
    hot = torch.eye(2)[torch.tensor([[0, 1], [1, 1]])].flatten(1)
    x = torch.tensor([[0.3, -0.2, 0.5, 0.1], [-0.6, 0.4, 0.0, 0.9]]) if kind == "number" else hot
    limits = (torch.tensor(-1.0), torch.tensor(1.0))
    found = attacked(x[None], torch.tensor([[0, 1]]), schema=schema, limits=limits, iterations=80)
    assert cells_right(found.x, x[None], schema)[0].double().mean() > 0.8
    assert list(found.confidence.shape) == [1, 2, len(columns)]


def test_restarts_take_the_place_of_members() -> None:
    assert TabLeak().settings.restarts == 30
    assert method_of("tableak:members=4").settings.restarts == 4
    assert method_of("tableak", restarts=7, iterations=9).settings.restarts == 7
    assert method_of("tableak", restarts=7, iterations=9).iterations == 9
    assert method_of("tableak").iterations == 1500
    assert method_of("tableak").traits.needs == TABLE


# --- runs ------------------------------------------------------------------------------------


def test_a_run_scores_cells_and_says_what_confidence_is_worth() -> None:
    scenario, attempt = staged(people(), iterations=40)
    played = rebuild(scenario, attempt)
    kinds = ("categories", "numbers")
    sure = {f"{end}_sure: {kind}" for end in ("most", "least") for kind in kinds}
    assert {"cells", "columns", "records", *sure} <= set(played.scores)
    assert list(played.scores["most_sure: numbers"].shape) == [2]
    assert list(played.confidence.shape) == [4, 4]
    assert {"random rows", "mean"} <= set(played.baselines)
    assert all("cells" in one for one in played.baselines.values())
    measured = {one.metric: one for one in measurements_of(attempt, "people", played)}
    assert measured["cells"].estimate.n == 4
    assert 0 < measured["cells"].chance < 1


@pytest.mark.parametrize("columns", [("height", "age"), ("town", "sex")])
def test_a_run_on_a_table_of_one_kind_of_column(columns: tuple[str, ...]) -> None:
    played = rebuild(*staged(people()[[*columns, "income"]], iterations=30))
    kinds = {name.split(": ")[1] for name in played.scores if "_sure" in name}
    assert kinds == {"numbers" if "age" in columns else "categories"}


def test_a_single_member_says_nothing_of_numbers() -> None:
    played = rebuild(*staged(people(), method="tableak:members=1"))
    assert "most_sure: categories" in played.scores
    assert "most_sure: numbers" not in played.scores


def test_confidences_go_with_their_rows_and_survive_a_kill(tmp_path: Path) -> None:
    scenario, attempt = staged(people(), iterations=40)
    played = Rebuilt.from_arrays(rebuild(scenario, attempt).to_arrays())
    keep_records(tmp_path, scenario.schema, [played])
    (found,) = read_rows(tmp_path, 1)["0"][:1]
    for at, one in enumerate(scenario.schema.columns):
        _, right, near, confidence = found[one.name]
        assert confidence == pytest.approx(float(played.confidence[0, at]), abs=5e-4)
        assert near or not right
    assert played.redacted().confidence is None


def test_confidences_follow_the_order_of_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row is sure of its own first category alone: the order shows in the confidence."""
    scenario, attempt = staged(people(), batch_size=4)
    turned = scenario.x.flip(0)[None]
    marks = turned[0, :, 0].expand(len(scenario.schema.columns), -1).T[None]

    def rebuilt(self, task, seen, known, options) -> Reconstruction:
        direct = Reconstruction.direct(turned, known.labels)
        return replace(direct, confidence=marks)

    monkeypatch.setattr(TabLeak, "rebuild", rebuilt)
    played = rebuild(scenario, attempt)
    assert torch.equal(played.x, scenario.x)
    assert torch.equal(played.confidence[:, 0], scenario.x[:, 0])


@pytest.mark.parametrize("redact", [False, True])
def test_the_page_colours_cells_by_confidence_and_redaction_keeps_nothing(
    redact: bool, tmp_path: Path
) -> None:
    path = tmp_path / "people.csv"
    people().to_csv(path, index=False)
    words = ("--label", "income", "--images", 4, "--batch-size", 2, "--iterations", 40)
    named = ("--method", "tableak:members=3", "--method", "exact")
    out = ("--json", "--out", "out", *(("--redact",) if redact else ()))
    ended = run("invert", path, *words, *named, *out, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)["results"]
    assert set(found[0]["most_sure"]) == {"categories", "numbers"}
    assert "most_sure" not in found[1]
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert ('style="--sure:' in page) is not redact
    assert ("wrong, struck out" in page) is not redact
    assert "by the confidence of the method" in page
    assert bool(list((tmp_path / "out").rglob("rows.json"))) is not redact


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tableak:members=0", "members"),
        ("tableak:lr=-1", "lr"),
        ("tableak:betta=1", "no setting 'betta'"),
    ],
)
def test_wrong_settings_are_refused(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason) as refused:
        method_of(text)
    assert "\n" not in str(refused.value)


def test_images_and_updates_are_refused() -> None:
    spec = make_spec(InversionSpec, {"data": "pictures", "method": "tableak", "label": "y"})
    with pytest.raises(InputError, match="--method tableak needs a table") as refused:
        prepare(spec, pictures())
    assert "\n" not in str(refused.value)
    with pytest.raises(InputError, match="--method tableak is for x; choose one of dlg"):
        refuse_tables_only("tableak", "x; choose")
