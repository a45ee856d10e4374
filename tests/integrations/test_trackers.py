"""An audit logged to MLflow and TensorBoard, read back by them; W&B by a stand-in that records."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from leakgauge.catalog import questions
from leakgauge.core.checks import InputError
from leakgauge.result import Result
from leakgauge.results.measurements import Measurement
from leakgauge.runs.page import read_audit, sections_of
from support.command import run
from support.made_runs import make_records
from support.many_runs import write_audit

UNDER = "prune_rate_0.99/static/property.auroc"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished audit: one figure without and one with a defense."""
    records = [*make_records(1.0), *make_records(0.5, defense="prune:rate=0.99")]
    return write_audit(tmp_path_factory.mktemp("logged") / "run", records)


@pytest.fixture(scope="module")
def result(folder: Path) -> Result:
    audit = read_audit(folder)
    return Result(audit, sections_of(audit, questions()))


@pytest.fixture(scope="module")
def expected(result: Result) -> dict[str, float]:
    """The figures by flat names, straight from the measurements."""

    def values(name: str, one: Measurement) -> dict[str, float]:
        figure = one.estimate
        ends = {f"{name}.low": figure.low, f"{name}.high": figure.high}
        return {name: figure.value, **ends, f"{name}.n": figure.n}

    found = {one.defense: one for one in result.measurements if one.metric == "auroc"}
    return values("property.auroc", found["none"]) | values(UNDER, found["prune:rate=0.99"])


@pytest.fixture
def mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # the skinny package has no database
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mlflow as found
    return found


@pytest.mark.slow  # MLflow takes seconds to import
@pytest.mark.filterwarnings("ignore")  # those of MLflow
def test_mlflow_keeps_the_audit_in_the_active_run_or_a_new_one(
    mlflow: Any, result: Result, expected: dict[str, float]
) -> None:
    with mlflow.start_run() as active:
        said = result.log_to("mlflow", step=3)
        nested = result.log_to("mlflow", run="audit")
        described = replace(result.run.description, settings={"inference": {"seed": 1}})
        other = Result(replace(result.run, description=described), result.sections)
        with pytest.raises(InputError, match=r"MLflow refused the audit: .*seed"):
            other.log_to("mlflow")
    client = mlflow.MlflowClient()
    kept = client.get_run(active.info.run_id)
    assert kept.data.metrics == expected
    assert client.get_metric_history(active.info.run_id, "property.auroc")[0].step == 3
    assert kept.data.tags["property.verdict"] == result.verdicts[0].verdict
    assert kept.data.params["inference.batch_size"] == "16"
    assert kept.data.params["data.name"] == "adult"
    assert mlflow.artifacts.load_text(f"{kept.info.artifact_uri}/report.html") == result.to_html()
    assert f"the active MLflow run {kept.info.run_name}" in said
    (new,) = [one for one in client.search_runs(["0"]) if one.info.run_name == "audit"]
    assert new.data.metrics == expected
    assert new.info.status == "FINISHED"
    assert f"the new MLflow run audit ({new.info.run_id})" in nested


def test_tensorboard_keeps_the_audit(
    tmp_path: Path, result: Result, expected: dict[str, float]
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    said = result.log_to("tensorboard", run=str(tmp_path / "logs"), step=3)
    events = EventAccumulator(str(tmp_path / "logs"))
    events.Reload()
    scalars = {name: events.Scalars(name) for name in events.Tags()["scalars"]}
    assert {name: one.value for name, (one,) in scalars.items()} == pytest.approx(expected)
    assert scalars["property.auroc"][0].step == 3
    (text,) = events.Tensors("verdicts/text_summary")
    assert result.verdicts[0].verdict in text.tensor_proto.string_val[0].decode()
    assert (tmp_path / "logs" / "report.html").read_text("utf-8") == result.to_html()
    assert str(tmp_path / "logs") in said


class Recorder:
    """Stands in for W&B, which is not installed here: it keeps what a run gets."""

    def __init__(self, name: str) -> None:
        self.name, self.config, self.summary = name, _Updated(), _Updated()
        self.logged: list[tuple[dict[str, float], int | None]] = []
        self.files: dict[str, str] = {}

    def log(self, values: dict[str, float], step: int | None = None) -> None:
        self.logged.append((values, step))

    def log_artifact(self, artifact: Any) -> None:
        self.files |= artifact.files


class _Updated(dict[str, Any]):
    def update(self, values: dict[str, Any], allow_val_change: bool = False) -> None:  # type: ignore[override]
        super().update(values)


class _Artifact:
    def __init__(self, name: str, type: str) -> None:  # noqa: A002 - as W&B names it
        self.files: dict[str, str] = {}

    def add_file(self, local_path: str, name: str) -> None:
        self.files[name] = Path(local_path).read_text("utf-8")


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Any:
    made: Any = ModuleType("wandb")
    made.run, made.Artifact, made.started = None, _Artifact, []
    made.errors = SimpleNamespace(Error=type("Error", (Exception,), {}))

    @contextmanager
    def init(project: str, name: str | None) -> Iterator[Recorder]:
        made.started.append(Recorder(name or "chosen"))
        yield made.started[-1]

    made.init = init
    monkeypatch.setitem(sys.modules, "wandb", made)
    return made


def test_wandb_gets_the_audit(wandb: Any, result: Result, expected: dict[str, float]) -> None:
    assert "the new W&B run audit" in result.log_to("wandb", run="audit", step=3)
    wandb.run = Recorder("training")
    assert "the active W&B run training" in result.log_to("wandb")
    for one, step in ((wandb.started[0], 3), (wandb.run, None)):
        assert one.logged == [(expected, step)]
        assert one.summary["property.verdict"] == result.verdicts[0].verdict
        assert one.config["leakgauge"]["inference.seed"] == "0"
        assert one.files == {"report.html": result.to_html()}
    with pytest.raises(InputError, match="a W&B run is active"):
        result.log_to("wandb", run="other")


def test_a_page_with_private_records_stays_here(tmp_path: Path, result: Result) -> None:
    private = Result(result.run, [replace(one, private=True) for one in result.sections])
    said = private.log_to("tensorboard", run=str(tmp_path / "kept"))
    assert "no report.html, as it shows private records" in said
    assert not (tmp_path / "kept" / "report.html").exists()
    private.log_to("tensorboard", run=str(tmp_path / "sent"), private_records=True)
    assert (tmp_path / "sent" / "report.html").exists()


def test_an_unknown_or_missing_tracker_is_refused(
    result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="no tracker 'mlfow'; did you mean 'mlflow'"):
        result.log_to("mlfow")
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(InputError, match=r"wandb is not installed; .*'leakgauge\[wandb\]'"):
        result.log_to("wandb")


def test_the_command_line_logs_a_finished_audit(folder: Path, tmp_path: Path) -> None:
    ended = run("report", folder, "--log-to", "tensorboard", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "8 figures" in ended.stdout
    assert len(list(tmp_path.glob("runs/*/events*"))) == 1
    assert run("report", folder, "--log-to", "tensorbord").returncode == 2
