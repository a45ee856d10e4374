"""A federation whose clients send weights of bfloat16 or float16, audited with a float32 model."""

from pathlib import Path

import pytest
import torch
from torch import nn

from leakgauge.core.types import Dataset, Task
from leakgauge.integrations.kept import Exchange, Keeper
from leakgauge.integrations.kept_reading import read_kept
from leakgauge.training import Participant, Protocol, State, Update
from leakgauge.training.federation import federation
from support import command
from support.kept import TASK, normal

pytestmark = pytest.mark.usefixtures("few_scales")

LAYERS = "nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)"
COARSE = [torch.bfloat16, torch.float16]


def net() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model: nn.Module = eval(f"nn.Sequential({LAYERS})", {"nn": nn})
        return model


def keep(folder: Path, dtype: torch.dtype) -> None:
    """Keep what two clients send in two rounds, rounded to a type, and write the auditor's task."""
    x, y = normal(80, 6, name="x"), torch.arange(80) % 2
    task, keeper = Task(net()), Keeper(folder / "kept")
    people = [Participant(Dataset(x[rows], y[rows])) for rows in (slice(0, 20), slice(20, 40))]
    protocol = Protocol(rounds=2, lr=0.1, batch_size=5)
    for one in federation(task, State.of(task.model), people, protocol, seed=0):
        for who in one.sent:
            sent = (
                {name: leaf.to(dtype) for name, leaf in leaves.items()}
                for leaves in (one.received[who], one.uploaded(who))
            )
            config = {"lr": 0.1, "local-epochs": 1, "batch-size": 5}
            keeper.keep(Exchange(one.number, str(who), *sent, examples=20, config=config))
    client = torch.tensor([1] * 20 + [2] * 20 + [0] * 40)
    torch.save({"x": x, "y": y, "secrets": {"client": client}}, folder / "records.pt")
    name = f"auditor_{str(dtype).removeprefix('torch.')}"
    (folder / f"{name}.py").write_text(TASK.format(layers=LAYERS.replace("nn.", "torch.nn.")))


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.slow)]
)
def test_every_question_is_answered(dtype: torch.dtype, tmp_path: Path) -> None:
    keep(tmp_path, dtype)
    name = f"auditor_{str(dtype).removeprefix('torch.')}"
    ended = command.run(
        "federation", "kept", "--task", f"{name}:task", "--iterations", 3, "--out", "out",
        cwd=tmp_path,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    for question in ("kept-membership", "kept-reconstruction"):
        assert question in ended.stdout
    (one, *_) = read_kept(tmp_path / "kept").updates
    update, (before, after) = one.update(net()), one.tensors()
    for mine, sent in ((update.before, before), (update.values, after)):
        for leaf_name, leaf in mine.items():
            assert sent[leaf_name].dtype == dtype
            assert torch.equal(leaf, sent[leaf_name].float())


@pytest.mark.parametrize("dtype", COARSE)
def test_rounding_counts_after_a_cast(dtype: torch.dtype) -> None:
    """What a step of a small rate loses is lost, in whichever type the weights came."""
    before = {name: leaf.detach().to(dtype) for name, leaf in net().named_parameters()}
    after = {name: leaf + leaf.abs() * torch.finfo(dtype).eps for name, leaf in before.items()}
    sent = Update("weights", after, before, lr=0.1)
    fitted = sent.fitted(net())
    assert {leaf.dtype for leaf in (*fitted.before.values(), *fitted.values.values())} == {
        torch.float32
    }
    assert "near their rounding" in sent.warnings()[0]
    assert fitted.warnings() == sent.warnings()
    assert fitted.fitted(net()) is fitted
