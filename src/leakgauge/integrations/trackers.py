"""Trackers of experiments that keep an audit: MLflow, W&B and TensorBoard."""

import importlib
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from leakgauge.core.checks import InputError, require, require_known
from leakgauge.core.extras import not_installed
from leakgauge.core.files import write_text
from leakgauge.evidence.logged import Logged
from leakgauge.results.measurements import REPORT_FILE

PROJECT = "leakgauge"
"""Project of a new W&B run, and name of the artifact."""


def log_to(tracker: str, given: Logged, *, run: str | None = None, step: int | None = None) -> str:
    """Log an audit and return one sentence: what was logged, and where.

    Args:
        tracker: ``"mlflow"``, ``"wandb"`` or ``"tensorboard"``.
        given: what is logged.
        run: name of a new run (of TensorBoard: its folder). None takes the active run; without
            one, a new run that the tracker names.
        step: step of a training that the figures belong to.

    Raises:
        InputError: the tracker is unknown or not installed, or refuses what it gets.
    """
    check_tracker(tracker)
    where = TRACKERS[tracker](given, run, step)
    return f"{given.what}: logged to {where}"


def check_tracker(tracker: str) -> None:
    """Refuse a tracker that is unknown or not installed."""
    require_known(tracker, TRACKERS, f"no tracker {tracker!r}")
    _imported("torch.utils.tensorboard" if tracker == "tensorboard" else tracker, tracker)


def _imported(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise not_installed(extra, extra) from error


def _to_mlflow(given: Logged, run: str | None, step: int | None) -> str:
    mlflow = _imported("mlflow", "mlflow")
    active = mlflow.active_run()
    try:
        if active is not None and run is None:
            _fill_mlflow(mlflow, given, step)
            return f"the active MLflow run {active.info.run_name} ({active.info.run_id})"
        with mlflow.start_run(run_name=run, nested=active is not None) as new:
            _fill_mlflow(mlflow, given, step)
            return f"the new MLflow run {new.info.run_name} ({new.info.run_id})"
    except mlflow.exceptions.MlflowException as error:
        raise InputError(f"MLflow refused the audit: {' '.join(str(error).split())}") from error


def _fill_mlflow(mlflow: Any, given: Logged, step: int | None) -> None:
    longest = mlflow.utils.validation.MAX_PARAM_VAL_LENGTH
    mlflow.log_params({name: text[:longest] for name, text in given.settings.items()})
    mlflow.log_metrics(dict(given.figures), step=step)
    mlflow.set_tags(dict(given.verdicts))
    if given.page:
        mlflow.log_text(given.page, REPORT_FILE)


def _to_wandb(given: Logged, run: str | None, step: int | None) -> str:
    wandb = _imported("wandb", "wandb")
    active = wandb.run
    require(
        active is None or run is None,
        f"a W&B run is active, and run={run!r} asks for a new one; finish the active run first, or "
        "leave run out to log into it",
    )
    try:
        if active is not None:
            _fill_wandb(wandb, active, given, step)
            return f"the active W&B run {active.name}"
        with wandb.init(project=PROJECT, name=run) as new:
            _fill_wandb(wandb, new, given, step)
            return f"the new W&B run {new.name} of the project {PROJECT}"
    except wandb.errors.Error as error:
        raise InputError(f"W&B refused the audit: {' '.join(str(error).split())}") from error


def _fill_wandb(wandb: Any, run: Any, given: Logged, step: int | None) -> None:
    run.config.update({PROJECT: dict(given.settings)}, allow_val_change=True)
    run.log(dict(given.figures), step=step)
    run.summary.update(dict(given.verdicts))
    if given.page:
        with tempfile.TemporaryDirectory() as folder:
            write_text(Path(folder) / REPORT_FILE, given.page)
            artifact = wandb.Artifact(name=f"{PROJECT}-report", type="report")
            artifact.add_file(str(Path(folder) / REPORT_FILE), name=REPORT_FILE)
            run.log_artifact(artifact)


def _to_tensorboard(given: Logged, run: str | None, step: int | None) -> str:
    writer = _imported("torch.utils.tensorboard", "tensorboard").SummaryWriter(log_dir=run)
    with writer:
        for name, value in given.figures.items():
            writer.add_scalar(name, value, step)
        writer.add_text("verdicts", _table(given.verdicts), step)
        writer.add_text("settings", _table(given.settings), step)
    folder = Path(writer.log_dir)
    if given.page:
        write_text(folder / REPORT_FILE, given.page)
    return f"the folder {folder} of TensorBoard"


def _table(values: Mapping[str, str]) -> str:
    """Return values by name as a table in Markdown."""
    rows = [f"| {name} | {text.replace('|', '/')} |" for name, text in values.items()]
    return "\n".join(["| name | value |", "|---|---|", *rows])


TRACKERS: Mapping[str, Callable[[Logged, str | None, int | None], str]] = {
    "mlflow": _to_mlflow,
    "wandb": _to_wandb,
    "tensorboard": _to_tensorboard,
}
"""How each tracker keeps an audit, by the word that names it."""
