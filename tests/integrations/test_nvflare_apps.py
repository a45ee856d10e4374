"""Jobs of the shape of NVFlare's hello-pt run in the simulator, and the command audits them."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from leakgauge.integrations.kept_reading import read_kept
from support import command

pytest.importorskip("nvflare", reason='needs pip install "leakgauge[nvflare]"')

ROOT = Path(__file__).parents[2]
STOCK = ROOT / "tests" / "support" / "flare_stock"
BOTH = [(1, "site-1"), (1, "site-2"), (2, "site-1"), (2, "site-2")]


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("kind", ["full", "diff", "scaffold"])
def test_a_job_s_updates_are_the_clients_gradients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Weights, their changes, and weights beside SCAFFOLD's controls; on both sides."""
    folder = tmp_path / "app"
    shutil.copytree(STOCK, folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(ROOT / "examples" / "nvflare" / "digits.py", folder)
    done = subprocess.run(
        [sys.executable, "job.py", kind],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")},
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "digits", raising=False)
    digits = importlib.import_module("digits")
    for side in ("client", "server"):
        place = folder / ("kept" if side == "client" else "kept-server")
        assert place.is_dir(), done.stdout[-3000:]
        found = read_kept(place)
        assert [(one.number, one.client) for one in found.updates] == BOTH
        for one in found.updates:
            assert (one.examples, one.seen, one.training.steps) == (16, side, 1)
            net = digits.Net()
            net.load_state_dict(one.tensors()[0])
            x, y = digits.records_of(int(one.client[-1]) - 1)
            functional.cross_entropy(net(x), y).backward()
            gradient = one.update(net).as_gradient()
            for name, leaf in net.named_parameters():
                assert leaf.grad is not None
                torch.testing.assert_close(gradient[name][0], leaf.grad, rtol=1e-3, atol=1e-5)
    owners = ("--owner", "site-1=1", "--owner", "site-2=2", "--ask", "membership")
    words = ("--task", "digits:task", *owners, "--json", "--out", "run")
    ended = command.run("federation", "kept", *words, cwd=folder)
    assert ended.returncode == 0, ended.stderr
    updates = json.loads(ended.stdout)["membership"]["updates"]
    assert [(one["round"], one["client"]) for one in updates] == BOTH
