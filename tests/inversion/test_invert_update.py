"""``leakgauge invert --update``: what a client sent, made here by plain PyTorch training."""

import copy
import json
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from leakgauge.cli import main
from leakgauge.core.types import Dataset, Task
from leakgauge.inversion.run import received
from leakgauge.inversion.run.received import (
    Received,
    local_steps,
    prepare_received,
    record_count,
)
from leakgauge.inversion.scoring import range_of
from leakgauge.inversion.search.presets import Search, preset
from leakgauge.inversion.search.simulate import simulated_gradients
from leakgauge.results.measurements import read_measurements
from leakgauge.training import Update

SIDE, CLASSES, COLUMNS = 8, 4, 6
CELL = Path("cells") / "reconstruction"
MODULE = "received_task"
# The user's file; both networks are drawn from the seed that the command sets.
TASK = f"""
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from leakgauge import Task, from_arrays

def records(*shape):
    generator = torch.Generator().manual_seed(1)
    return torch.rand(64, *shape, generator=generator), torch.arange(64) % {CLASSES}

def pictures():
    layers = nn.Conv2d(1, 8, 3, padding=1), nn.Tanh(), nn.Flatten()
    model = nn.Sequential(*layers, nn.Linear(8 * {SIDE * SIDE}, {CLASSES}))
    return Task(model, cross_entropy), from_arrays(*records(1, {SIDE}, {SIDE}), {{}})

def table():
    model = nn.Sequential(nn.Linear({COLUMNS}, 12), nn.Tanh(), nn.Linear(12, {CLASSES}))
    return Task(model, cross_entropy), from_arrays(*records({COLUMNS}), {{}})

def alike():
    task, data = pictures()
    return task, from_arrays(torch.ones_like(data.x), data.y, {{}})

def training():
    layers = nn.BatchNorm1d({COLUMNS}), nn.Linear({COLUMNS}, {CLASSES})
    return Task(nn.Sequential(*layers), cross_entropy), table()[1]

def narrow():
    task, data = pictures()
    return task, from_arrays(data.x[..., 1:], data.y, {{}})
"""

Go = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("few_scales")


def network(table: bool = False, seed: int = 5) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if table:
            return nn.Sequential(nn.Linear(COLUMNS, 12), nn.Tanh(), nn.Linear(12, CLASSES))
        layers = nn.Conv2d(1, 8, 3, padding=1), nn.Tanh(), nn.Flatten()
        return nn.Sequential(*layers, nn.Linear(8 * SIDE * SIDE, CLASSES))


def truth(n: int, *shape: int) -> Tensor:
    """Smooth records, none of them among the public ones."""
    generator = torch.Generator().manual_seed(9)
    if len(shape) == 1:
        return torch.rand(n, *shape, generator=generator)
    along = torch.linspace(0.1, 0.9, SIDE)
    mixed = torch.rand(n, 1, 1, 1, generator=generator)
    return mixed * along[None, None, None, :] + (1 - mixed) * along[None, None, :, None]


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: leaf.detach().clone() for name, leaf in model.named_parameters()}


def gradient(x: Tensor, y: Tensor, **told: Any) -> Update:
    model = network(table=x.dim() == 2)
    cross_entropy(model(x), y).backward()
    grads = {name: leaf.grad for name, leaf in model.named_parameters()}
    return Update("gradient", grads, weights(model), **told)


def trained(x: Tensor, y: Tensor, *, lr: float, size: int, passes: int = 1) -> Update:
    """Local training as a client writes it: PyTorch's own SGD."""
    model = network()
    before = weights(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    steps = 0
    for _ in range(passes):
        for batch_x, batch_y in zip(x.split(size), y.split(size), strict=True):
            optimizer.zero_grad()
            cross_entropy(model(batch_x), batch_y).backward()
            optimizer.step()
            steps += 1
    told = {"lr": lr, "steps": steps, "batch_size": size, "records": len(x)}
    return Update("weights", weights(model), before, **told)


PICTURE = (1, SIDE, SIDE)


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Go:
    """Run the command in a folder that holds the user's file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"{MODULE}.py").write_text(TASK)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")

    def run(update: Update | Path | None, *words: object, task: str | None = "pictures"):
        path = update
        if isinstance(update, Update):
            path = tmp_path / "update.safetensors"
            update.save(path)
        first = () if path is None else ("--update", path)
        second = () if task is None else ("--task", f"{MODULE}:{task}")
        every = ("leakgauge", "invert", *first, *second, *words)
        monkeypatch.setattr("sys.argv", list(map(str, every)))
        with pytest.raises(SystemExit) as done:
            main()
        said = capsys.readouterr()
        return int(done.value.code or 0), said.out, said.err

    return run


def told(go: Go, update: Update, *words: object, **given: Any) -> dict[str, Any]:
    code, out, err = go(update, "--json", *words, **given)
    assert code == 0, err
    (line,) = out.splitlines()
    return json.loads(line, parse_constant=pytest.fail)


def test_a_picture_comes_back_from_what_a_client_sent(go: Go, tmp_path: Path) -> None:
    """The truth stays in this test; labels are inferred."""
    x, y = truth(1, *PICTURE), torch.tensor([2])
    sent = gradient(x, y, batch_size=1), trained(x, y, lr=0.1, size=1)
    for number, update in enumerate(sent):
        found = told(go, update, "--iterations", 100, "--out", tmp_path / f"{number}")
        assert found.pop("loss") > 0
        assert found.pop("seconds_per_iteration") > 0
        assert found.pop("report") == str(tmp_path / f"{number}" / "report.html")
        assert found.pop("matched") > 0.99
        assert found.pop("matched_in_direction") > 0.99
        assert "knows the update" in found.pop("threat_model")
        assert found.pop("assumed") == [None, "plain SGD (no optimizer is named)"][number]
        facts = {"method": "leakgauge", "records": 1, "iterations": 100}
        assert found == {**facts, "labels": [2], "warnings": []}
        pictures = load_file(tmp_path / f"{number}" / CELL / "pictures.safetensors")
        assert list(pictures) == ["0"]
        assert pictures["0"].shape == (1, *PICTURE)
        # The public records' box is nearly 0 to 1, so pixels are nearly 255 x.
        apart = (pictures["0"].float() / 255 - x).abs().mean()
        assert apart < 0.03, number
        assert apart < 0.2 * (x - x.mean()).abs().mean()


def test_a_clipped_gradient_is_matched_in_direction(go: Go, tmp_path: Path) -> None:
    """The picture comes back, and the size of its gradient is not that of the update."""
    x, y = truth(1, *PICTURE), torch.tensor([2])
    whole = gradient(x, y, batch_size=1)
    clipped = replace(whole, values={n: 0.02 * leaf for n, leaf in whole.values.items()})
    found = told(go, clipped, "--iterations", 100, "--out", tmp_path / "run")
    assert found["matched"] < 0.5
    assert found["matched_in_direction"] > 0.99
    pictures = load_file(tmp_path / "run" / CELL / "pictures.safetensors")
    assert (pictures["0"].float() / 255 - x).abs().mean() < 0.03
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Matched in direction to" in page
    assert "clipped or rescaled" in page


def test_the_record_holds_the_loss_alone(go: Go, tmp_path: Path) -> None:
    update = gradient(truth(1, *PICTURE), torch.tensor([0]), batch_size=1)
    found = told(go, update, "--iterations", 5, "--out", tmp_path / "run", "--method", "agic")
    record, matched = read_measurements(tmp_path / "run")
    assert matched.metric == "matched"
    assert (record.metric, record.adversary) == ("loss", "agic")
    assert record.estimate.value == found["loss"] > 0
    assert record.curve is not None
    # The loss of the start stands first, and the kept point is the best on the way.
    assert record.curve[0][0] == 0
    assert found["loss"] == pytest.approx(min(value for _, value in record.curve))


def test_labels_are_counted_where_records_share_them(go: Go) -> None:
    x, y = truth(6, *PICTURE), torch.tensor([3, 0, 3, 3, 1, 0])
    found = told(go, gradient(x, y, batch_size=6), "--iterations", 2)
    assert sorted(found["labels"]) == sorted(y.tolist())


def test_known_labels_are_those_of_the_file(go: Go) -> None:
    x, y = truth(2, *PICTURE), torch.tensor([1, 2])
    other = torch.tensor([0, 3])  # not what the gradient says
    update = gradient(x, y, batch_size=2, labels=other)
    words = ("--iterations", 2)
    assert told(go, update, *words, "--labels", "known")["labels"] == other.tolist()
    assert sorted(told(go, update, *words)["labels"]) == y.tolist()
    dlg = told(go, update, *words, "--labels", "known", "--method", "dlg-adam")
    assert dlg["labels"] == other.tolist()


def test_rows_of_a_table(go: Go, tmp_path: Path) -> None:
    x, y = truth(1, COLUMNS), torch.tensor([2])
    update = gradient(x, y, batch_size=1)
    words = ("--iterations", 150, "--method", "inverting-gradients", "--out", tmp_path / "run")
    told(go, update, *words, task="table")
    kept = load_file(tmp_path / "run" / CELL / "rebuilt.safetensors")
    assert kept["labels"].tolist() == y.tolist()
    assert (kept["x"] - x).abs().max() < 0.05
    assert not (tmp_path / "run" / CELL / "pictures.safetensors").exists()


@pytest.mark.parametrize(("size", "passes"), [(1, 1), (2, 2), (4, 3)])
def test_the_steps_that_are_simulated_are_the_client_s(size: int, passes: int) -> None:
    """At the true records the simulated client sends what the real one sent."""
    x, y = truth(4, *PICTURE), torch.tensor([0, 1, 2, 3])
    update = trained(x, y, lr=0.05, size=size, passes=passes)
    local = local_steps(update, record_count(update))
    task = Task(network(), cross_entropy)
    found = simulated_gradients(task, update.before, x[None], y[None], local)
    for name, leaf in update.as_gradient().items():
        torch.testing.assert_close(found[name], leaf, rtol=1e-3, atol=1e-5)


def test_simulation_finds_what_one_batch_does_not() -> None:
    """Two steps at a rate that moves the weights far, with one record each."""
    x, y = truth(2, *PICTURE), torch.tensor([0, 1])
    update = replace(trained(x, y, lr=2.0, size=1), labels=y)
    data = Dataset(torch.rand(64, *PICTURE), torch.arange(64) % CLASSES)
    apart = {}
    for simulate in (False, True):
        found = prepare_received(
            Task(network(), cross_entropy),
            data,
            update,
            Search(preset("inverting-gradients", iterations=50)),
            labels="known",
            simulate=simulate,
        ).rebuild()
        apart[simulate] = float((found.x - x).square().mean())
    assert apart[True] < 0.5 * apart[False]


def test_a_large_rate_warns_unless_it_is_simulated(go: Go) -> None:
    x, y = truth(4, *PICTURE), torch.tensor([0, 1, 2, 3])
    far = trained(x, y, lr=0.5, size=1)
    found = told(go, far, "--iterations", 2)
    (warning,) = found["warnings"]
    assert warning in unescape(Path(found["report"]).read_text("utf-8"))
    assert "simulate the local steps" in warning
    assert "warning: the weights drift by" in go(far, "--iterations", 2)[2]
    known = replace(far, labels=y)
    words = ("--iterations", 2, "--simulate", "--labels", "known")
    assert told(go, known, *words)["warnings"] == []
    (dealt,) = told(go, far, "--iterations", 2, "--simulate")["warnings"]
    assert "does not show the local step that used each" in dealt
    assert told(go, trained(x, y, lr=1e-3, size=1), "--iterations", 2)["warnings"] == []


def test_plain_words_and_a_page_without_truth(
    go: Go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = gradient(truth(1, *PICTURE), torch.tensor([3]), batch_size=1)
    code, out, err = go(update, "--iterations", 3, "--out", tmp_path / "run", "--verbose")
    assert code == 0, err
    assert "The true records are not known here" in out
    assert "labels (inferred): 3" in out
    report = tmp_path / "run" / "report.html"
    page = report.read_text(encoding="utf-8")
    assert page.count("data:image/png") == 1
    assert "rebuilt image 1" in page
    assert "true image" not in page
    assert "true and rebuilt. Share" not in page
    assert "PSNR" not in page
    report.unlink()
    monkeypatch.setattr("sys.argv", ["leakgauge", "report", str(tmp_path / "run")])
    with pytest.raises(SystemExit):
        main()
    assert report.read_text(encoding="utf-8") == page


def test_redact_keeps_nothing_of_a_record(go: Go, tmp_path: Path) -> None:
    update = gradient(truth(1, *PICTURE), torch.tensor([3]), batch_size=1)
    found = told(go, update, "--iterations", 3, "--out", tmp_path / "run", "--redact")
    assert found["labels"] is None
    kept = {one.name for one in (tmp_path / "run" / CELL).iterdir()}
    assert kept == {"cell.yaml", "measurements.jsonl", "attempts.json"}
    assert "data:image" not in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "labels" not in go(update, "--iterations", 3, "--redact")[1]


def test_a_refusal_leaves_the_folder_alone(go: Go, tmp_path: Path) -> None:
    update = gradient(truth(2, *PICTURE), torch.tensor([3, 1]))
    words = ("--iterations", 2, "--out", tmp_path / "run", "--images", 2)
    assert go(update, *words, "--labels", "known")[0] == 2
    assert told(go, update, *words)["records"] == 2


def test_the_seed_is_all_randomness(go: Go) -> None:
    update = gradient(truth(1, *PICTURE), torch.tensor([3]), batch_size=1)
    losses = [told(go, update, "--iterations", 2, "--seed", seed)["loss"] for seed in (0, 0, 1)]
    assert losses[0] == losses[1] != losses[2]


def one() -> Update:
    return gradient(truth(2, *PICTURE), torch.tensor([3, 1]), batch_size=2)


def steps(**changed: Any) -> Update:
    x, y = truth(4, *PICTURE), torch.tensor([0, 1, 2, 3])
    return replace(trained(x, y, lr=0.1, size=2), **changed)


def silent() -> Update:
    update = steps()
    return replace(update, values=update.before)


def of_a_table() -> Update:
    return gradient(truth(1, COLUMNS), torch.tensor([1]), batch_size=1)


def renamed() -> Update:
    update = one()
    parts = [{f"1.{k}": v for k, v in p.items()} for p in (update.values, update.before)]
    return Update("gradient", *parts, batch_size=2)


KNOWN = ("--labels", "known")
REFUSED: list[tuple[Callable[[], Update], tuple[object, ...], str]] = [
    (renamed, (), "the update has no '0.weight'"),
    (of_a_table, (), "the update has no '3.weight'"),
    (silent, (), "the update equals the weights before, so it reveals nothing; was the client"),
    (lambda: steps(lr=None), (), "lr is missing; an update of kind 'weights' has no scale"),
    (lambda: replace(one(), batch_size=None), (), "with --images"),
    (lambda: steps(batch_size=None, records=None), (), "with --images"),
    (steps, ("--images", 9), "do not go with 9 records"),
    (one, ("--images", 0), "--images is 0"),
    (one, ("--labels", "known"), "the update holds none; take --labels inferred"),
    (lambda: replace(one(), labels=torch.tensor([1])), KNOWN, "1 labels; expected 2"),
    (lambda: replace(one(), labels=torch.tensor([1, 4])), KNOWN, "from 1 to 4; the model has 4"),
    (one, ("--labels", "guessed"), "--labels is 'guessed'"),
    (one, ("--simulate",), "a gradient of 1 step needs no simulation"),
    (lambda: steps(batch_size=None), ("--simulate",), "does not give its batch size"),
    (lambda: steps(records=3), ("--simulate",), "not whole passes over 3 records"),
    (one, ("--method", "agci"), "did you mean 'agic'?"),
    (one, ("--method", "exact"), "--method exact is for DATA"),
    (one, ("--method", "agic", "--method", "dlg"), "--method names 2 methods"),
    (one, ("data.csv",), "expected either DATA, or --update"),
    (one, ("--label", "income"), "--label is about DATA"),
    (one, ("--batch-size", 2), "--batch-size is about DATA"),
    (one, ("--defense", "sign"), "--defense is about DATA"),
    (one, ("--drop-missing",), "--drop-missing is about DATA"),
    (one, ("--iterations", 0), "--iterations is 0"),
    (one, ("--device", "abacus"), "--device abacus cannot be used here"),
]  # fmt: skip


def refusal(go: Go, *words: Any, **given: Any) -> str:
    code, out, err = go(*words, **given)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count(os.linesep) == 1
    return err


@pytest.mark.parametrize(("update", "words", "reason"), REFUSED)
def test_bad_input_is_one_clear_line(
    go: Go, update: Callable[[], Update], words: tuple[object, ...], reason: str
) -> None:
    assert reason in refusal(go, update(), *words)


def test_files_that_are_no_update(go: Go, tmp_path: Path) -> None:
    pickled, plain = tmp_path / "update.pt", tmp_path / "plain.safetensors"
    pickled.write_bytes(pickle.dumps({"w": 1}))
    save_file({"w": torch.ones(2)}, plain)
    assert "pickles are refused" in refusal(go, pickled)
    assert "lacks the header of leakgauge" in refusal(go, plain)
    assert "no such file" in refusal(go, tmp_path / "nowhere")


def test_update_and_task_go_together(go: Go) -> None:
    assert "--update and --task go together" in refusal(go, one(), task=None)
    assert "only a language model's token sequences" in refusal(go, None)
    assert "expected either DATA, or --update" in refusal(go, None, task=None)
    assert "expected either DATA, or --update" in refusal(go, None, "data.csv")
    assert "no function 'picturs'" in refusal(go, one(), task="picturs")


def test_public_records_must_say_something(go: Go) -> None:
    assert "all equal" in refusal(go, one(), task="alike")
    assert "Sequential refuses inputs" in refusal(go, one(), task="narrow")


def test_a_model_in_train_mode_is_attacked_as_it_trained(go: Go) -> None:
    """BatchNorm with the statistics of the batch, which the running ones of the update tell."""
    model = nn.Sequential(nn.BatchNorm1d(COLUMNS), nn.Linear(COLUMNS, CLASSES))
    held = {name: leaf.clone() for name, leaf in model.named_buffers()}
    cross_entropy(model(truth(4, COLUMNS)), torch.arange(4)).backward()
    grads = {name: leaf.grad for name, leaf in model.named_parameters()}
    update = Update(
        *("gradient", grads, weights(model)),
        batch_size=4,
        buffers=dict(model.named_buffers()),
        held=held,
    )
    found = told(go, update, "--iterations", 2, task="training")
    helped = told(go, update, "--iterations", 2, "--statistics", "inferred", task="training")
    assert helped["loss"] > found["loss"]  # It counts the statistics, too.
    said = refusal(go, one(), "--statistics", "proxy")
    assert "no BatchNorm in training mode" in said
    assert "take inferred or proxy" in refusal(go, update, "--statistics", "known")


def test_what_flower_s_client_sends_is_attacked(go: Go) -> None:
    """Momentum and several steps by torch's own SGD; the rate may be unknown."""
    model = network(table=True)
    before = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for batch in range(2):
        optimizer.zero_grad()
        cross_entropy(model(truth(4, COLUMNS)[2 * batch :][:2]), torch.tensor([0, 1])).backward()
        optimizer.step()
    update = Update.from_state_dicts(
        before, model.state_dict(), lr=0.1, steps=2, batch_size=2, optimizer="sgd:momentum=0.9"
    )
    found = told(go, update, "--iterations", 2, "--simulate", task="table")
    assert found["records"] == 4
    words = ("--iterations", 2, "--simulate", "--unknown", "rate")
    blind = told(go, update, *words, task="table")
    assert any("assumes 0.001 at each step" in text for text in blind["warnings"])
    assert "leave out --unknown optimizer" in refusal(go, update, "--unknown", "optimizer")


def test_pictures_are_scaled_from_the_box() -> None:
    low, high = torch.tensor([-2.0, 0, 5]).view(3, 1, 1), torch.tensor([2.0, 1, 5]).view(3, 1, 1)
    x = torch.stack([low, (low + high) / 2, high, high + 1]).expand(-1, -1, 2, 2)
    found = Received(x, torch.zeros(4), 0.0, (), low, high, (), 0.0).pictures
    assert found is not None
    assert found.dtype == torch.uint8
    # The last channel is constant among the public records: one unit is its width.
    assert found[..., 0, 0].tolist() == [[0, 0, 0], [128, 128, 0], [255, 255, 0], [255, 255, 255]]
    assert Received(x[:, :, 0, 0], *(torch.zeros(4), 0.0, (), low, high, (), 0.0)).pictures is None


def test_the_box_is_of_channels_or_of_columns() -> None:
    pictures = torch.arange(2 * 3 * 4 * 4.0).view(2, 3, 4, 4)
    low, high = range_of(pictures)
    assert low.shape == high.shape == (3, 1, 1)
    assert low.flatten().tolist() == [pictures[:, c].min() for c in range(3)]
    assert high.flatten().tolist() == [pictures[:, c].max() for c in range(3)]
    low, high = range_of(pictures.flatten(1))
    assert (low.tolist(), high.tolist()) == (
        pictures[0].flatten().tolist(),
        pictures[1].flatten().tolist(),
    )


def test_in_python_the_model_stays_as_it_is_and_the_type_is_the_weights_one() -> None:
    model = network().double()
    x, y = truth(2, *PICTURE).double(), torch.tensor([1, 2])
    cross_entropy(model(x), y).backward()
    grads = {name: leaf.grad for name, leaf in model.named_parameters()}
    update = Update("gradient", grads, weights(model), batch_size=2)
    task = Task(network(seed=6).double(), cross_entropy)  # the update brings its own weights
    before = {name: leaf.clone() for name, leaf in task.model.state_dict().items()}
    data = Dataset(torch.rand(20, *PICTURE), torch.arange(20) % CLASSES)
    found = prepare_received(
        task, data, update, Search(preset("leakgauge", iterations=3))
    ).rebuild()
    assert found.x.dtype == torch.float64
    assert found.x.shape == (2, *PICTURE)
    assert bool((found.x >= found.low).all() and (found.x <= found.high).all())
    assert all(torch.equal(leaf, before[name]) for name, leaf in task.model.state_dict().items())


def test_statistics_that_the_client_began_with_are_those_of_the_attack() -> None:
    """A fresh model of the same architecture has others, and would give other gradients."""

    def normed(shift: float) -> nn.Module:
        model = nn.Sequential(nn.BatchNorm2d(1), *network()).eval()
        model[0].running_mean.fill_(shift)
        return model

    server, client = normed(0.4), normed(0.4)
    x, y = truth(1, *PICTURE), torch.tensor([1])
    cross_entropy(client(x), y).backward()
    torch.optim.SGD(client.parameters(), lr=0.1).step()
    update = Update.from_state_dicts(
        server.state_dict(), client.state_dict(), lr=0.1, batch_size=1, records=1, model=server
    )
    data = Dataset(torch.rand(20, *PICTURE), torch.arange(20) % CLASSES)
    method = Search(preset("agic", iterations=60))
    own, fresh = (
        prepare_received(Task(model, cross_entropy), data, update, method).rebuild()
        for model in (server, normed(0.0))
    )
    assert torch.equal(own.x, fresh.x)


def test_only_some_public_records_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def noted(*args: Any, like: Tensor, **given: Any) -> Any:
        seen.append(like)
        return infer(*args, like=like, **given)

    infer = received.infer_labels
    monkeypatch.setattr(received, "infer_labels", noted)
    data = Dataset(
        torch.rand(received.MOST_PUBLIC + 50, *PICTURE),
        torch.zeros(received.MOST_PUBLIC + 50).long(),
    )
    task = Task(network(), cross_entropy)
    prepare_received(task, data, one(), Search(preset("agic", iterations=1)))
    (like,) = seen
    assert like.shape == (1, received.MOST_PUBLIC, *PICTURE)
    assert not torch.equal(like[0], data.x[: received.MOST_PUBLIC])
