"""The settings, facts and notes of an audit of kept updates, for its report."""

from collections.abc import Sequence

from leakgauge.core.names import few
from leakgauge.core.versions import versions
from leakgauge.federation.run.normalisation import described_statistics
from leakgauge.federation.run.preparing import FederationPrepared, count_of, without_others
from leakgauge.federation.spec import MEMBERSHIP, OVER_ROUNDS, RECONSTRUCTION, plain_word
from leakgauge.integrations.kept_reading import KeptUpdate, other_runs
from leakgauge.inversion.run.received_steps import not_simulated
from leakgauge.results.measurements import Run
from leakgauge.runs.spec import plain

_NOT_SHOWN = ("kept", "files", "data", "filters")
"""Settings that the description of a run omits; the checksum represents the kept updates."""


def description_of(prepared: FederationPrepared) -> Run:
    """Return the settings and facts of a run for the report."""
    kept, source = prepared.kept, prepared.source
    facts = {
        "name": source.name,
        "fingerprint": source.fingerprint,
        "updates": len(kept.updates),
        "rounds": len(kept.rounds),
        "clients": len(kept.clients),
        "public": len(prepared.public),
        "kept": kept.fingerprint,
        "seen by": ", ".join(dict.fromkeys(one.seen for one in kept.updates)),
        "framework": ", ".join(dict.fromkeys(one.source for one in kept.updates)),
    }
    shown = {
        name: value
        for name, value in plain(prepared.spec).items()
        if name not in _NOT_SHOWN and value not in (None, [], {}, False)
    }
    return Run("", shown, facts, (*source.notes, *_notes(prepared)), versions())


def _notes(prepared: FederationPrepared) -> Sequence[str]:
    notes = [f"{plain_word(ask)} is not asked: {why}" for ask, why in prepared.not_asked.items()]
    others = other_runs(prepared.kept)
    if others:
        notes.append(
            f"the folder also keeps other runs, which are not read: {few(map(str, others))}"
        )
    alone = without_others(prepared)
    if MEMBERSHIP in prepared.spec.ask and alone:
        notes.append(f"{' and '.join(OVER_ROUNDS)} are not run: {alone}")
    if RECONSTRUCTION not in prepared.spec.ask:
        return notes
    larger = sum(
        one.examples is not None and prepared.spec.images is None and one.examples > limit
        for one in prepared.kept.updates
        for limit in [count_of(prepared, one)]
    )
    if larger:
        notes.append(
            f"{larger} updates have more records than a search looks for; it finds records with a "
            "mean gradient like the update's (--images)"
        )
    by_default = not (prepared.spec.simulate or prepared.spec.no_simulate)
    updates = prepared.kept.updates if by_default else ()
    if simulated := sum(_steps_are_simulated(prepared, one) for one in updates):
        notes.append(
            f"several local steps are simulated (updates: {simulated}), which takes longer than "
            "one gradient; --no-simulate takes them for one"
        )
    kinds = list(prepared.statistics.values())
    notes += described_statistics(prepared.spec.statistics, prepared.task.model, kinds)
    if not prepared.held:
        notes.append("the clients' records are unknown here, so rebuilt ones are not scored")
    return notes


def _steps_are_simulated(prepared: FederationPrepared, one: KeptUpdate) -> bool:
    """Return whether several steps of an update are simulated without being asked for."""
    count = count_of(prepared, one)
    if count != (one.examples or count):
        return False
    update = one.update(prepared.task.model, prepared.known(one))
    return not not_simulated(update, count, ordered=False)
