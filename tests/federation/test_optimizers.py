"""Kept updates of clients with other optimizers than SGD, through the command."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from leakgauge.federation.metrics import of_client
from leakgauge.federation.report.wording import tables, verdict
from leakgauge.federation.spec import RECONSTRUCTION
from leakgauge.integrations.kept import Exchange, Keeper
from leakgauge.integrations.training_settings import LocalTraining
from leakgauge.inversion.words import ASSUMED, EQUAL_GRADIENTS
from leakgauge.results.measurements import ACCUMULATED, CellContext, Estimate, Measurement
from support.command import Ended, run
from support.kept import TASK, normal

LAYERS = "nn.Linear(12, 64), nn.Sigmoid(), nn.Linear(64, 4)"
NAME = "auditor_of_optimizers"
RATES = {"sgd": 0.1, "momentum": 0.1, "nesterov": 0.1, "adam": 1e-3, "rmsprop": 1e-4}
MAKES: dict[str, Any] = {
    "sgd": torch.optim.SGD,
    "momentum": partial(torch.optim.SGD, momentum=0.9),
    "nesterov": partial(torch.optim.SGD, momentum=0.9, nesterov=True),
    "adam": torch.optim.Adam,
    "rmsprop": torch.optim.RMSprop,
}


def keep(
    folder: Path,
    made_by: str,
    steps: int = 1,
    noise: float = 0.0,
    beside: tuple[str, ...] = (),
    **local: Any,
) -> None:
    """Keep what a client with one record sends, and write its auditor's task."""
    torch.manual_seed(0)
    model = eval(f"nn.Sequential({LAYERS})", {"nn": nn})
    before = {name: leaf.clone() for name, leaf in model.state_dict().items()}
    x, public = normal(1, 12, name="x"), normal(40, 12, name="public")
    y = torch.arange(41) % 4
    made = MAKES[made_by](model.parameters(), lr=RATES[made_by])
    for _ in range(steps):
        made.zero_grad()
        nn.functional.cross_entropy(model(x), y[:1]).backward()
        made.step()
    for leaf in model.parameters():
        leaf.data += noise * normal(*leaf.shape, name="noise")
    settings = {"lr": RATES[made_by], "batch_size": 1, "epochs": steps, **local}
    Keeper(folder / "kept", training=LocalTraining(**settings)).keep(
        Exchange(1, "0", before, model.state_dict(), examples=1, beside=beside)
    )
    client = (torch.arange(41) == 0).long()
    kept = {"x": torch.cat([x, public]), "y": y, "secrets": {"client": client}}
    torch.save(kept, folder / "records.pt")
    (folder / f"{NAME}.py").write_text(TASK.format(layers=LAYERS.replace("nn.", "torch.nn.")))


def asked(folder: Path, *words: object) -> Ended:
    task = ("--task", f"{NAME}:task", "--ask", "reconstruction")
    return run("federation", "kept", *task, *words, cwd=folder)


def found(folder: Path, *words: object) -> dict[str, Any]:
    ended = asked(folder, *words, "--json", "--out", "run")
    assert ended.returncode == 0, ended.stderr
    told: dict[str, Any] = json.loads(ended.stdout)["reconstruction"]
    return told


@pytest.mark.calibration
@pytest.mark.usefixtures("few_scales")
@pytest.mark.parametrize(
    ("optimizer", "title"), [("adam", "Adam or its like"), ("rmsprop", "RMSp")]
)
def test_one_step_is_recognised_and_its_record_rebuilt(
    tmp_path: Path, optimizer: str, title: str
) -> None:
    keep(tmp_path, optimizer)
    one = found(tmp_path, "--iterations", 60)
    assert one["value"] > one["chance"] + 5
    assert one["matched"]["value"] > 0.99
    assert one["assumed"].startswith(title)
    assert "recognised from the update" in one["assumed"]
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert f"Assumed: {title}" in page


@pytest.mark.calibration
def test_several_steps_of_adam_are_simulated_without_being_asked_for(tmp_path: Path) -> None:
    keep(tmp_path, "adam", 4)
    one = found(tmp_path, "--iterations", 120)
    assert one["assumed"].startswith("Adam at a rate of 0.001")
    assert one["value"] > one["chance"]
    assert one["matched"]["value"] > 0.95


@pytest.mark.usefixtures("few_scales")
def test_what_the_search_does_not_match_is_not_understood(tmp_path: Path) -> None:
    keep(tmp_path, "sgd", noise=1.0)  # no record has such an update
    one = found(tmp_path, "--iterations", 3)
    assert (one["verdict"], one["level"]) == ("Not understood", "inconclusive")
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "not understood. Name how the clients trained: <code>--local-optimizer</code>" in page
    ended = asked(tmp_path, "--iterations", 3, "--out", "again")
    assert "Not matched: the update of the rebuilt records matches the sent one to" in ended.stdout
    assert "Assumed: plain SGD (no optimizer is named)" in ended.stdout


@pytest.mark.parametrize(
    ("made", "named", "said"),
    [
        ("adam", {"optimizer": "sgd"}, "the optimizer is named 'sgd', and the update contradicts"),
        ("sgd", {"optimizer": "adam"}, "the optimizer is named 'adam', and the update contradicts"),
    ],
)
def test_a_kept_name_that_the_update_contradicts_is_refused(
    tmp_path: Path, made: str, named: dict[str, str], said: str
) -> None:
    keep(tmp_path, made, **named)
    ended = asked(tmp_path, "--iterations", 3)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert asked(tmp_path, "--iterations", 3, "--local-optimizer", made).returncode == 0


@pytest.mark.usefixtures("few_scales")
def test_an_optimizer_by_option_is_checked_and_used(tmp_path: Path) -> None:
    keep(tmp_path, "adam")
    named = found(tmp_path, "--iterations", 3, "--local-optimizer", "adam")
    assert "assumed" not in named
    for words, said in (
        (["adm"], "'adm'"),
        (["os:system"], "'os'"),
        (["adam", "--momentum", 0.9], "name it in one place"),
        (["adam:lr=0.1"], "name the rate, --local-lr 0.001"),
    ):
        ended = asked(tmp_path, "--local-optimizer", *words)
        assert (ended.returncode, said in ended.stderr) == (2, True), ended.stderr
        assert ended.stderr.count("\n") == 1


@pytest.mark.calibration
@pytest.mark.usefixtures("few_scales")
@pytest.mark.parametrize(
    ("made", "steps", "said"),
    [
        ("nesterov", 1, "SGD with a Nesterov momentum of 0.9, whose search reproduces the update"),
        pytest.param(
            "momentum",
            4,
            "SGD with a momentum of 0.9, whose search reproduces the update",
            marks=pytest.mark.slow,
        ),
        pytest.param("sgd", 4, "plain SGD (no optimizer is named)", marks=pytest.mark.slow),
    ],
)
def test_steps_of_sgd_are_simulated_and_their_momentum_is_read_off(
    tmp_path: Path, made: str, steps: int, said: str
) -> None:
    keep(tmp_path, made, steps)
    one = found(tmp_path, "--iterations", 60)
    assert one["assumed"].startswith(said)
    assert "equal gradients" not in one["assumed"]
    assert one["matched"]["value"] > 0.99
    named = {"nesterov": "sgd:momentum=0.9,nesterov=True", "momentum": "sgd:momentum=0.9"}
    words = ("--iterations", 60, "--local-optimizer", named.get(made, "sgd"))
    ended = asked(tmp_path, *words, "--json", "--out", "named")
    known = json.loads(ended.stdout)["reconstruction"]
    assert "assumed" not in known
    assert one["value"] == pytest.approx(known["value"], abs=1.0)
    assert one["value"] > one["chance"] + 5


@pytest.mark.usefixtures("few_scales")
def test_steps_that_are_not_simulated_are_said_to_be_taken_for_one_gradient(tmp_path: Path) -> None:
    keep(tmp_path, "sgd", 4)
    one = found(tmp_path, "--iterations", 3, "--no-simulate")
    assert "equal gradients at all 4 steps" in one["assumed"]
    assert one["verdict"] == "Not understood", "also where the update is reproduced"
    assert "are simulated" not in asked(tmp_path, "--iterations", 3, "--no-simulate").stderr
    assert (
        "several local steps are simulated (updates: 1)"
        in asked(tmp_path, "--iterations", 3).stderr
    )
    both = asked(tmp_path, "--simulate", "--no-simulate")
    assert (both.returncode, both.stderr.count("\n")) == (2, 1)
    assert "contradict each other" in both.stderr
    many = tmp_path / "many"
    many.mkdir()
    keep(many, "sgd", 11)
    one = found(many, "--iterations", 3)
    assert "at all 11 steps, since over 10 steps take long to simulate" in one["assumed"]


@pytest.mark.usefixtures("few_scales")
def test_what_is_sent_beside_the_model_is_named_in_the_verdict(tmp_path: Path) -> None:
    keep(tmp_path, "sgd", beside=("control",))
    one = found(tmp_path, "--iterations", 3)
    assert "steps without 'control', which was sent beside the model" in one["assumed"]


@pytest.mark.usefixtures("few_scales")
def test_the_term_of_fedprox_and_a_decay_of_the_configuration_are_used(tmp_path: Path) -> None:
    keep(tmp_path, "sgd", 4, proximal_mu=0.01, weight_decay=0.1)
    one = found(tmp_path, "--iterations", 3)
    said = "SGD (no optimizer is named), with weight_decay=0.1, proximal_mu=0.01 as configured"
    assert one["assumed"].startswith(said)


def test_the_worst_match_decides_over_several_updates() -> None:
    """A mean of 0.97 hides one update that was not reproduced."""
    context = CellContext(
        question="federation",
        game=RECONSTRUCTION,
        dataset="data",
        adversary="leakgauge",
        round=1,
        seed=0,
    )
    points = {"psnr": (9.0, 9.0), "matched": (1.0, 0.94)}

    def measured(metric: str, value: float, at: int | str) -> Measurement:
        one = replace(context, round=at)
        return one.measurement(metric, Estimate(value, value, value, 1), chance=11.0)

    made = [
        measured(of_client(metric, str(who)), value, 1)
        for metric, values in points.items()
        for who, value in enumerate(values)
    ]
    made += [measured(metric, sum(two) / 2, ACCUMULATED) for metric, two in points.items()]
    (table,) = tables(made)
    doubted = replace(
        table,
        matched=None,
        mean=replace(table.mean, details={ASSUMED: f"plain SGD; {EQUAL_GRADIENTS} 4 steps"}),
    )
    assert verdict(replace(table, matched=None)).words == "Records not rebuilt"
    assert verdict(doubted).words == "Not understood", "a match does not confirm equal gradients"
    judged = verdict(table)
    assert judged.words == "Not understood"
    assert "matches the sent one to 94 %" in judged.text
    assert "This is the worst of 2 updates." in judged.text
