"""docs/how-to/monitor.md: its Python runs as it stands, in one session; its logs are read back."""

import logging
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from leakgauge import Monitor
from leakgauge.tokens.monitor import background, job
from support.loops import QUICK, AtOnce, network, train

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "monitor.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.filterwarnings("ignore")  # those of four other packages


@pytest.fixture(autouse=True)
def _estimates_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start no process for estimates, and plant few leaks: the page is about neither."""
    monkeypatch.setattr(background, "ProcessPoolExecutor", lambda **given: AtOnce())
    monkeypatch.setattr(job, "LEVELS", job.LEVELS[-1:])
    monkeypatch.setattr(job, "LINEAR_LEVELS", job.LINEAR_LEVELS[-1:])


def block(words: str) -> str:
    (found,) = [one for one in BLOCKS if words in one]
    return found


@pytest.mark.slow
def test_python_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    session: dict[str, Any] = {}
    for one in BLOCKS:
        exec(compile(one, "monitor.md", "exec"), session)
        if "checkpoints=[49]" in one:
            assert "information_nats.value" in session["monitor"].to_pandas()
    assert session["monitor"].records


def test_tensorboard_has_the_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.chdir(tmp_path)
    model = network()
    session: dict[str, Any] = {"Monitor": _quick, "model": model}
    exec(compile(block("SummaryWriter"), "monitor.md", "exec"), session)
    with session["monitor"] as monitor:
        train(model, 121)
    session["writer"].close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    cheap = [(one.step, one.value) for one in events.Scalars("leak/cheap")]
    expected = [(one["step"], one["cheap"]) for one in monitor.records if "cheap" in one]
    assert cheap == [(step, pytest.approx(value)) for step, value in expected]
    (low,) = events.Scalars("leak/mi/infonce/low")
    found = monitor.records[-1]["information_nats"]
    assert (low.step, low.value) == (120, pytest.approx(found["low"]))


@pytest.mark.slow
def test_mlflow_has_the_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # the skinny package has no database
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mlflow

    model = network()
    session: dict[str, Any] = {"Monitor": _quick, "model": model}
    exec(compile(block("import mlflow"), "monitor.md", "exec"), session)
    with mlflow.start_run() as run, session["monitor"] as monitor:
        train(model, 121)
    client = mlflow.MlflowClient()
    history = client.get_metric_history(run.info.run_id, "leak/cheap")
    expected = [(one["step"], one["cheap"]) for one in monitor.records if "cheap" in one]
    assert sorted((one.step, one.value) for one in history) == expected
    (bound,) = client.get_metric_history(run.info.run_id, "leak/mi/infonce")
    assert (bound.step, bound.value) == (120, monitor.records[-1]["information_nats"]["value"])


def _quick(model: torch.nn.Module, **given: Any) -> Monitor:
    return Monitor(
        model, checkpoints=[120], gather=1, pairs="stream", settings=QUICK, wait=120, **given
    )
