"""docs/how-to/flower-privacy.md: its Python runs as it stands, and shows what it says."""

import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason='needs pip install "leakgauge[flower]"')

from flwr import simulation
from flwr.app import Context, RecordDict

from support.flower_app import in_process

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "flower-privacy.md"
(BLOCK,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)

pytestmark = [
    pytest.mark.usefixtures("quiet_flower"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def of_this_process(server: Any, client: Any, *, num_supernodes: int) -> None:
    grid = in_process().InProcess(client, num_supernodes, {})
    server(grid, Context(1, 1, {}, RecordDict(), {}))


def shown(capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], str]:
    """Run the page's block, and return its names and what it printed."""
    for seeded in (np.random.seed, random.seed, torch.manual_seed):
        seeded(0)
    session: dict[str, Any] = {}
    exec(compile(BLOCK, "flower-privacy.md", "exec"), session)
    return session, capsys.readouterr().out


def check(session: dict[str, Any], said: str) -> None:
    found = session["audit"].result(delta=1e-5)
    assert not found.flagged
    assert found.claim.epsilon == pytest.approx(17.9, abs=0.05)
    for words in (
        "claimed (client, added or removed)",
        "planted clients (whole scores)",
        "share of one client",
        "Training does what it says",
        "Not refuted",
    ):
        assert words in said


def test_python_of_the_page_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process in place of Ray."""
    monkeypatch.setattr(simulation, "run_simulation", of_this_process)
    check(*shown(capsys))


@pytest.mark.slow
@pytest.mark.process
def test_python_of_the_page_runs_in_flower_s_simulation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("ray", reason="needs pip install 'flwr[simulation]'")
    check(*shown(capsys))
