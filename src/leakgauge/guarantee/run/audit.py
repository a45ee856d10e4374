"""Audits a guarantee and returns its measurements."""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from leakgauge.core.rng import torch_stream
from leakgauge.core.threads import one_thread
from leakgauge.core.types import Dataset, Task
from leakgauge.core.versions import versions
from leakgauge.data.encoding import encode
from leakgauge.data.source import Source
from leakgauge.data.table import Table
from leakgauge.guarantee.game import AuditResult, audit_pair
from leakgauge.guarantee.pair import Pair
from leakgauge.guarantee.run.checkpoint import keep_pair, kept_pair
from leakgauge.guarantee.run.measure import measurements_of
from leakgauge.guarantee.run.mechanisms import build_mechanism
from leakgauge.guarantee.run.record import pair_of
from leakgauge.guarantee.run.training import audited_params
from leakgauge.guarantee.spec import GuaranteeSpec, claimed
from leakgauge.guarantee.statistic import LikelihoodRatio, Norm, Statistic
from leakgauge.models.perceptron import mlp
from leakgauge.results.measurements import Run
from leakgauge.runs.checkpoint import Checkpoint
from leakgauge.runs.question import Answer, Progress
from leakgauge.runs.spec import own_code
from leakgauge.runs.work import WorkFolder

STATISTICS: dict[str, Statistic] = {one.name: one for one in (LikelihoodRatio(), Norm())}
CRAFTING, RELEASING = "crafting a record", "releasing gradients"


def run(
    spec: GuaranteeSpec,
    source: Source,
    folder: WorkFolder,
    progress: Progress,
    *,
    workers: int | None = None,
) -> Answer:
    """Return what an auditor learns of one attribute from the releases of a model.

    Args:
        spec: resolved.
        source: a table.
        folder: keeps the record, and the states of its search and of the trials on the way.
        progress: gets notes on the data and finished parts.

    Raises:
        InputError: the table cannot be used, or the mechanism fails.
    """
    table = spec.table(source)
    description = _describe(spec, source, table)
    for note in description.notes:
        progress.note(note)
    folder.guard(replace(description, settings={**description.settings, "code": own_code(spec)}))
    with one_thread():
        pair, result = _audit(table, spec, folder, progress)
    return Answer(description, measurements_of(spec, source.name, pair, result))


def _audit(
    table: Table, spec: GuaranteeSpec, folder: WorkFolder, progress: Progress
) -> tuple[Pair, AuditResult]:
    data = encode(table, fit_on=torch.arange(len(table))).to(spec.device)
    task = _initial_task(data, len(table.classes), spec)
    params = audited_params(task, data, spec, folder, progress)
    pair = kept_pair(folder, data, spec)
    if pair is None:
        search = Checkpoint(folder, "search")
        pair = pair_of(task, params, data, spec, partial(progress.step, CRAFTING), search)
        keep_pair(folder, pair)
        folder.forget("search")
    progress.step(RELEASING, 0, 1)
    result = audit_pair(
        task,
        params,
        pair,
        build_mechanism(spec.mechanism, claimed(spec)),
        claimed=claimed(spec),
        statistic=STATISTICS[spec.statistic],
        trials=spec.trials,
        delta=spec.delta,
        seed=spec.seed,
        checkpoint=Checkpoint(folder, "trials"),
    )
    progress.step(RELEASING, 1, 1)
    return pair, result


def _initial_task(data: Dataset, classes: int, spec: GuaranteeSpec) -> Task:
    generator = torch_stream(spec.seed, "model")
    model = mlp(data.x.shape[1], classes, spec.hidden, generator=generator)
    return Task(model.to(spec.device), cross_entropy)


def _describe(spec: GuaranteeSpec, source: Source, table: Table) -> Run:
    about = {
        "name": source.name,
        "fingerprint": source.fingerprint,
        "records": len(table),
    }
    notes = [*source.notes, *table.notes, *_note_on_defenses(spec)]
    return Run("", _settings(spec), about, notes, versions())


def _settings(spec: GuaranteeSpec) -> dict[str, Any]:
    """The settings that the figures depend on, by name, as plain values."""
    return {
        "attribute": spec.attribute,
        "clip": spec.clip,
        "noise": spec.noise,
        "label": spec.label,
        "canary": spec.canary,
        "statistic": spec.statistic,
        "mechanism": spec.mechanism,
        "trials": spec.trials,
        "delta": spec.delta,
        "hidden": list(spec.hidden),
        "rounds": spec.rounds,
        **(_training(spec) if spec.rounds else {}),
        "group": spec.group,
        "drop": list(spec.drop),
        "bins": dict(spec.bins),
        "drop_missing": spec.drop_missing,
        "device": spec.device,
        "seed": spec.seed,
        "table": spec.data,
        **spec.reading,
    }


def _training(spec: GuaranteeSpec) -> dict[str, Any]:
    return {"lr": spec.lr, "batch_size": spec.batch_size, "private": spec.private}


def _note_on_defenses(spec: GuaranteeSpec) -> list[str]:
    """A note where nothing says which mechanism to audit."""
    if not spec.defense:
        return []
    dpsgd = claimed(spec)
    return [
        f"DP-SGD with clip {dpsgd.clip:g} and noise {dpsgd.noise:g} is audited, since no defense "
        "of this run promises differential privacy; to audit another, add one such as --defense "
        "dpsgd:clip=1,noise=0.5"
    ]
