"""Runs the question: every attempt of a spec, each kept when it is finished."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from leakgauge.core.checks import InputError
from leakgauge.core.versions import versions
from leakgauge.data.fingerprints import fingerprint
from leakgauge.data.source import Source
from leakgauge.inversion.attack import assumptions, order_warnings, search_progress
from leakgauge.inversion.labels.inference import label_accuracy
from leakgauge.inversion.metrics.lpips import NO_WEIGHTS, Lpips, default_lpips
from leakgauge.inversion.metrics.table import LABEL_ACCURACY
from leakgauge.inversion.observed import AttackOptions, SearchProgress
from leakgauge.inversion.run.attempt import Attempt, attempts_of
from leakgauge.inversion.run.kept import facts_of, keep_facts, keep_records
from leakgauge.inversion.run.measuring import SNAPSHOTS, chance_of, curves_of, measurements_of
from leakgauge.inversion.run.over_epochs import rebuild_over_epochs
from leakgauge.inversion.run.rebuilt import Rebuilt
from leakgauge.inversion.run.receive import run_update
from leakgauge.inversion.run.scenario import Scenario, scenario_of
from leakgauge.inversion.run.updates import attack_updates, in_updates
from leakgauge.inversion.scoring import in_true_order
from leakgauge.inversion.spec import InversionSpec
from leakgauge.results.measurements import Run
from leakgauge.runs.checkpoint import Checkpoint
from leakgauge.runs.question import Answer, Progress
from leakgauge.runs.spec import plain
from leakgauge.runs.work import WorkFolder

Played = list[tuple[Attempt, Rebuilt]]

_NOT_SHOWN = ("ask", "task", "update", "files")
"""Settings that the description of a run does not list."""


@dataclass(frozen=True)
class _Outcome:
    """The finished attempts, why others are missing, and whether the user stopped the run."""

    played: Played
    missing: tuple[str, ...] = ()
    stopped: bool = False


def run(spec: InversionSpec, source: Source, folder: WorkFolder, progress: Progress) -> Answer:
    """Return the measurements of all attempts.

    Finished attempts are read back from the folder. If the user stops the run, the attempts that
    are finished make the answer.

    Args:
        spec: resolved.
        source: the data.
        folder: keeps finished attempts, and the records for the report.
        progress: gets iterations, notes and warnings.

    Raises:
        InputError: the first attempt cannot be played.
        KeyboardInterrupt: the user stopped it before the first attempt was finished.
    """
    if spec.update is not None:
        return run_update(spec, source, folder, progress)
    scenario = scenario_of(source, spec)
    for attempt in attempts_of(spec):
        attempt.client.defense.check(scenario.task)
    lpips = default_lpips() if spec.lpips is None else Lpips.load(spec.lpips)
    described = _described(spec, source, scenario)
    folder.guard(_origin(described, scenario, lpips))
    for note in described.notes:
        progress.note(note)
    if lpips is None and scenario.pixels is not None:
        progress.note(NO_WEIGHTS)
    outcome = _play(spec, scenario, lpips, folder, progress)
    _keep(folder, spec, scenario, outcome.played)
    warnings = list(dict.fromkeys(text for _, one in outcome.played for text in one.warnings))
    for warning in warnings:
        progress.warn(warning)
    measurements = [
        measurement
        for attempt, rebuilt in outcome.played
        for measurement in measurements_of(attempt, source.name, rebuilt)
    ]
    run = replace(described, warnings=warnings)
    return Answer(run, measurements, outcome.missing, outcome.stopped)


def _play(
    spec: InversionSpec,
    scenario: Scenario,
    lpips: Lpips | None,
    folder: WorkFolder,
    progress: Progress,
) -> _Outcome:
    played: Played = []
    missing: list[str] = []
    for number, attempt in enumerate(attempts_of(spec), start=1):
        name = f"attempt-{number:04d}"
        try:
            played.append((attempt, _rebuilt(name, attempt, scenario, lpips, folder, progress)))
        except InputError as error:
            if not played:
                raise
            missing.append(f"{attempt.title}: {error}")
        except KeyboardInterrupt:
            if not played:
                raise
            missing.append(f"{attempt.title} and the attempts after it: you stopped the run")
            return _Outcome(played, tuple(missing), stopped=True)
    return _Outcome(played, tuple(missing))


def _rebuilt(
    name: str,
    attempt: Attempt,
    scenario: Scenario,
    lpips: Lpips | None,
    folder: WorkFolder,
    progress: Progress,
) -> Rebuilt:
    """The attempt's records and scores, from the folder where they are kept."""
    finished = folder.arrays(name)
    if finished is not None:
        return Rebuilt.from_arrays(finished)
    iterations = attempt.attack.iterations
    search = search_progress(progress, attempt.title, iterations) if iterations else None
    redact = attempt.spec.redact
    rebuilt = rebuild(
        scenario,
        attempt,
        lpips=lpips,
        progress=search,
        checkpoint=Checkpoint(None if redact else folder, name),  # a state holds records
    )
    kept = (rebuilt.redacted() if redact else rebuilt).to_arrays()
    folder.keep_arrays(name, *kept)
    folder.forget(name)
    return Rebuilt.from_arrays(kept)


def _keep(folder: WorkFolder, spec: InversionSpec, scenario: Scenario, played: Played) -> None:
    keep_facts(folder.files, [facts_of(*one) for one in played])
    if not spec.redact:
        keep_records(folder.files, scenario.schema, [rebuilt for _, rebuilt in played])


def _described(spec: InversionSpec, source: Source, scenario: Scenario) -> Run:
    settings = {name: value for name, value in plain(spec).items() if name not in _NOT_SHOWN}
    settings |= {
        "method": list(dict.fromkeys(spec.method)),
        "defense": list(dict.fromkeys(spec.defense)),
    }
    facts = {
        "name": source.name,
        "fingerprint": source.fingerprint,
        "records": len(scenario.x),
    }
    return Run("", settings, facts, scenario.notes, versions())


def _origin(described: Run, scenario: Scenario, lpips: Lpips | None) -> Run:
    """All that kept attempts depend on: also the weights of the networks."""
    networks: Mapping[str, Any] = {
        "model": fingerprint(dict(scenario.params)),
        "lpips": "" if lpips is None else fingerprint(dict(lpips.weights)),
    }
    return replace(described, data={**described.data, **networks})


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
        return rebuild_over_epochs(scenario, attempt, lpips, progress, checkpoint)
    spec, method = attempt.spec, attempt.attack
    x, y = (in_updates(values, attempt.client) for values in (scenario.x, scenario.y))
    options = AttackOptions(
        spec.seed, snapshots=SNAPSHOTS, progress=progress, checkpoint=checkpoint
    )
    sent, found, known = attack_updates(scenario, attempt, scenario.params, x, y, options)
    scorer, rows = scenario.scorer(lpips), in_true_order(found.x, x)
    scores = scorer.scores(rows, scenario.x)
    labels = found.labels if method.traits.uses_labels else None
    if labels is not None and not y.is_floating_point():
        scores[LABEL_ACCURACY] = label_accuracy(labels, y)
    warnings = (*sent.warnings(simulated=attempt.simulates), *found.notes)
    if method.traits.searches:
        warnings += order_warnings(spec.labels, method, simulate=spec.simulate)
        warnings += assumptions(scenario.task, attempt.client, known)
    return Rebuilt(
        scorer.in_units(rows),
        scorer.in_units(scenario.x),
        scores,
        curves_of(scenario, found, x),
        found.seconds_per_iteration,
        warnings,
        chance=chance_of(scenario),
        baselines=scorer.scores_of_guesses(scenario.baselines.guesses(x, labels), scenario.x),
    )
