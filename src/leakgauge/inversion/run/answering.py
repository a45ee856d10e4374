"""Runs the question: every attempt of a spec, or the attack on a received update."""

from dataclasses import replace

import torch

from leakgauge.core.checks import InputError
from leakgauge.core.precision import full_precision
from leakgauge.inversion.attack import assumptions, order_warnings, search_progress
from leakgauge.inversion.labels.inference import label_accuracy
from leakgauge.inversion.metrics.lpips import NO_WEIGHTS, Lpips
from leakgauge.inversion.metrics.table import (
    CERTIFIED,
    FELL_SHORT,
    LABEL_ACCURACY,
    LABEL_RESIDUAL,
    LAYER_CERTIFIED,
    LAYER_INPUTS,
    MATCHED,
)
from leakgauge.inversion.observed import AttackOptions, SearchProgress
from leakgauge.inversion.run.attempt import Attempt
from leakgauge.inversion.run.exposing import record_tests
from leakgauge.inversion.run.keeping import keep_received
from leakgauge.inversion.run.kept import facts_of, keep_facts, keep_records
from leakgauge.inversion.run.measuring import (
    SNAPSHOTS,
    measurements_of,
    measurements_of_update,
    scored,
)
from leakgauge.inversion.run.over_epochs import OverEpochs
from leakgauge.inversion.run.preparing import InversionPrepared, ReceivedPrepared
from leakgauge.inversion.run.rebuilt import Rebuilt
from leakgauge.inversion.run.scenario import Scenario
from leakgauge.inversion.run.updates import attack_updates, in_updates
from leakgauge.inversion.scoring import layer_inputs_exact
from leakgauge.results.record_tests import keep_record_tests
from leakgauge.runs.checkpoint import Checkpoint
from leakgauge.runs.parts import Kept, begin, once
from leakgauge.runs.question import Answer, Progress
from leakgauge.runs.spec import NONE
from leakgauge.runs.work import WorkFolder

Finished = list[tuple[Attempt, Rebuilt]]


@full_precision()
def answer(
    prepared: InversionPrepared | ReceivedPrepared,
    folder: WorkFolder,
    progress: Progress,
    *,
    workers: int | None = None,
) -> Answer:
    """Return the measurements of all attempts.

    Finished attempts are read back from the folder. If the user stops the run, the attempts that
    are finished make the answer.

    Args:
        prepared: attempts or an update that can be attacked.
        folder: keeps finished attempts, and the records for the report.
        progress: gets iterations, notes and warnings.
        workers: without effect: torch uses all threads.

    Raises:
        InputError: the first attempt cannot run, or the search on an update has no finite loss.
        KeyboardInterrupt: the user stopped it before the first attempt was finished.
    """
    if isinstance(prepared, ReceivedPrepared):
        return _run_received(prepared, folder, progress)
    described = prepared.described
    begin(folder, described, progress, identity=prepared.origin)
    if prepared.lpips is None and prepared.scenario.pixels is not None:
        progress.note(NO_WEIGHTS)
    finished, missing, stopped = _run_attempts(prepared, folder, progress)
    keep_facts(folder.files, [facts_of(*one) for one in finished])
    keep_record_tests(folder.files, record_tests(prepared.scenario, finished))
    if not prepared.spec.redact:
        keep_records(folder.files, prepared.scenario.schema, [one for _, one in finished])
    warnings = list(dict.fromkeys(text for _, one in finished for text in one.warnings))
    for warning in warnings:
        progress.warn(warning)
    name = prepared.source.name
    measured = [m for attempt, one in finished for m in measurements_of(attempt, name, one)]
    return Answer(replace(described, warnings=warnings), measured, tuple(missing), stopped)


def _run_attempts(
    prepared: InversionPrepared, folder: WorkFolder, progress: Progress
) -> tuple[Finished, list[str], bool]:
    """Return the finished attempts, why others are missing, and whether the user stopped them."""
    finished: Finished = []
    missing: list[str] = []
    for number, attempt in enumerate(prepared.attempts, start=1):
        name = f"attempt-{number:04d}"
        try:
            finished.append((attempt, _rebuilt(name, attempt, prepared, folder, progress)))
        except InputError as error:
            if not finished:
                raise
            missing.append(f"{attempt.title}: {error}")
        except KeyboardInterrupt:
            if not finished:
                raise
            missing.append(f"{attempt.title} and the attempts after it: you stopped the run")
            return finished, missing, True
    return finished, missing, False


def _rebuilt(
    name: str, attempt: Attempt, prepared: InversionPrepared, folder: WorkFolder, progress: Progress
) -> Rebuilt:
    """Return the attempt's records and scores, from the folder where they are kept."""
    redact = attempt.spec.redact

    def make() -> Kept:
        iterations = attempt.attack.iterations
        search = search_progress(progress, attempt.title, iterations) if iterations else None
        rebuilt = rebuild(
            prepared.scenario,
            attempt,
            lpips=prepared.lpips,
            progress=search,
            checkpoint=Checkpoint(None if redact else folder, name),  # a state holds records
        )
        return (rebuilt.redacted() if redact else rebuilt).to_arrays()

    kept = once(folder, name, make)
    folder.forget(name)
    return Rebuilt.from_arrays(kept)


def rebuild(
    scenario: Scenario,
    attempt: Attempt,
    *,
    lpips: Lpips | None = None,
    progress: SearchProgress | None = None,
    checkpoint: Checkpoint | None = None,
) -> Rebuilt:
    """Return what one attempt rebuilds; the truth is used for the scores alone.

    Args:
        scenario: private records, network and public records.
        attempt: method, defense and knowledge.
        lpips: network that scores images too.
        progress: called at each iteration.
        checkpoint: keeps the states of its searches.

    Raises:
        InputError: the method cannot attack this model, or adapts to no such defense.
    """
    if attempt.spec.epochs > 1:
        kept = checkpoint or Checkpoint(None)
        found = OverEpochs(scenario, attempt, lpips, progress, kept).rebuild()
    else:
        found = _rebuild_single(scenario, attempt, lpips, progress, checkpoint)
    if attempt.defense_of_means.is_known:
        return found
    # The attack that knows everything knows the defense, so each search falls short of it.
    updates = len(scenario.x) // attempt.client.records
    return replace(found, scores={**found.scores, FELL_SHORT: torch.ones(updates)})


def _rebuild_single(
    scenario: Scenario,
    attempt: Attempt,
    lpips: Lpips | None,
    progress: SearchProgress | None,
    checkpoint: Checkpoint | None,
) -> Rebuilt:
    """Return what an attempt rebuilds from one epoch; arguments and errors as for ``rebuild``."""
    spec, method = attempt.spec, attempt.attack
    x, y = (in_updates(values, attempt.client) for values in (scenario.x, scenario.y))
    options = AttackOptions(
        spec.seed, snapshots=SNAPSHOTS, progress=progress, checkpoint=checkpoint
    )
    sent, found, known = attack_updates(scenario, attempt, scenario.params, x, y, options)
    labels = found.labels if method.traits.uses_labels else None
    others = {}
    if labels is not None and not y.is_floating_point():
        others[LABEL_ACCURACY] = label_accuracy(labels, y)
    if found.matched is not None and attempt.defense == NONE:
        others[MATCHED] = found.matched
    if (short := found.fell_short(x, y)) is not None:
        others[FELL_SHORT] = short
    if found.certified is not None:
        others[CERTIFIED] = found.certified
    if found.layer is not None:
        others[LAYER_INPUTS] = layer_inputs_exact(found.layer, x)
        others[LAYER_CERTIFIED] = found.layer.certified
    if found.label_residual is not None:
        others[LABEL_RESIDUAL] = found.label_residual
    warnings = (*sent.warnings(simulated=attempt.simulates), *found.notes)
    if method.traits.searches:
        warnings += order_warnings(spec.labels, method, simulate=spec.simulate)
        warnings += assumptions(scenario.task, attempt.client, known)
    return scored(scenario, found, x, labels, others, warnings, lpips=lpips)


def _run_received(prepared: ReceivedPrepared, folder: WorkFolder, progress: Progress) -> Answer:
    """Return the loss of the rebuilt records; the records go to the folder unless redacted."""
    spec, update, described = prepared.spec, prepared.update, prepared.described
    begin(folder, described, progress, identity=described)
    for warning in update.warnings:
        progress.warn(warning)
    received = update.rebuild(
        search_progress(progress, spec.method[0], update.method.iterations),
        Checkpoint(None if spec.redact else folder, "attempt"),  # a state holds records
    )
    if not spec.redact:
        keep_received(folder.files, received)
    labels = None if spec.redact else received.labels.tolist()  # they are a part of the records
    warnings = list(received.warnings)
    keep_facts(folder.files, [{"warnings": warnings, "labels": labels}])
    measured = measurements_of_update(received, spec, update.method, described.data["name"])
    return Answer(replace(described, warnings=warnings), measured)
