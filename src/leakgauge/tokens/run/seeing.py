"""Finds what a run without a leak could have seen: planted leaks, and batches that are known."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from leakgauge.core.checks import InputError
from leakgauge.core.rng import derive
from leakgauge.core.threads import one_thread
from leakgauge.results.measurements import Estimate
from leakgauge.results.statistics import at_most
from leakgauge.runs.parts import Kept, each_once
from leakgauge.runs.question import Progress
from leakgauge.runs.work import WorkFolder, digest_of
from leakgauge.tokens.gathering import GATHERED, oracle_parts, roomy_records
from leakgauge.tokens.oracle import oracle_information
from leakgauge.tokens.run.measuring import gathering, private_records, smallest_planted
from leakgauge.tokens.run.preparing import TokensPrepared
from leakgauge.tokens.run.summarising import Peak, widened
from leakgauge.tokens.run.training import ModelCheckpoint
from leakgauge.tokens.settings import CriticSettings
from leakgauge.tokens.words import (
    CLEAR_NATS,
    ORACLE,
    ORACLE_BLIND,
    ORACLE_SEES,
    ORACLE_UNKNOWN,
    QUESTION,
)

Details = Mapping[str, str]

SPARE = 2
"""Times the records above which held-out figures are not low, so that the interval is narrow."""

GROUP = 32
"""Number of candidates; with more the interval is wider, as fewer groups fit into a block."""


@dataclass(frozen=True)
class _Check:
    """A check of one checkpoint.

    Attributes:
        at: the checkpoint.
        run: the check; it returns plain values, or why it cannot.
        of_oracle: whether an oracle is evaluated; otherwise leaks are planted.
    """

    at: ModelCheckpoint
    run: Callable[[], Kept | str]
    of_oracle: bool


def what_is_seen(
    prepared: TokensPrepared,
    course: Sequence[ModelCheckpoint],
    peaks: Mapping[str, Peak | None],
    folder: WorkFolder,
    progress: Progress,
    workers: int | None,
) -> dict[str, Details]:
    """Return details of what could have been seen, for each defense that shows no leak.

    The critic of the largest bound looks for planted leaks, unless it learned nothing: it may see a
    planted leak, which is the easiest of its size, and miss the leak of the data. An oracle looks
    at every checkpoint.

    Args:
        prepared: the run, without its source.
        course: checkpoints of all trainings.
        peaks: largest bound by defense.
        folder: keeps the finished checks.
        progress: is told of them.
        workers: processes; None chooses.
    """
    quiet = {text: one for text, one in peaks.items() if one is not None and one.bound.low <= 0}
    checks: dict[str, _Check] = {}
    for at in course:
        peak = quiet.get(at.defense)
        if peak is None:
            continue
        checks[f"{at.defense}/oracle-{at.step:06d}"] = _Check(
            at, partial(_oracle, prepared, at), of_oracle=True
        )
        if at.step == peak.step and not peak.ignorant:
            name = f"planted-{at.step:06d}-{peak.token}-{peak.method}-{peak.looks}"
            checks[f"{at.defense}/{name}"] = _Check(
                at, partial(_planted, prepared, at, peak), of_oracle=False
            )
    if not checks:
        return {}
    parts, refused = each_once(
        folder,
        {name: digest_of(one.at.tensors) for name, one in checks.items()},
        lambda left: {name: checks[name].run for name in left},
        partial(progress.step, f"{QUESTION}: checking what could be seen"),
        workers=workers,
        # Sums and chosen coordinates of each layer, of three gatherings.
        memory=3 * 2 * 4 * GATHERED * prepared.spec.width * (len(prepared.layers) + 1),
    )
    found: dict[str, Details] = {}
    for text in quiet:
        own = {name: one for name, one in checks.items() if one.at.defense == text}
        oracle = {
            one.at.step: dict(parts[name][1])
            for name, one in own.items()
            if one.of_oracle and name in parts
        }
        planted = [dict(parts[name][1]) for name, one in own.items() if not one.of_oracle]
        why = [refused[name] for name in own if name in refused]
        found[text] = {**_told(oracle, why), **(planted[0] if planted else {})}
    return found


def _oracle(prepared: TokensPrepared, at: ModelCheckpoint) -> Kept | str:
    """Return what an oracle finds at a checkpoint, or why it cannot be evaluated."""
    spec = prepared.spec
    with one_thread():
        few = replace(spec, records=min(spec.records, SPARE * roomy_records(spec.batch_size)))
        data = private_records(replace(prepared, spec=few))
        seed = derive(spec.seed, QUESTION, "oracle")
        try:
            sent, known = oracle_parts(
                *at.task(prepared.task), data, gathering(prepared, at), seed=seed
            )
            found, most = oracle_information(sent, known, CriticSettings(group=GROUP), seed=seed)
        except InputError as error:
            return str(error)
    return {}, {"estimate": vars(found), "most": most}


def _planted(prepared: TokensPrepared, at: ModelCheckpoint, peak: Peak) -> Kept:
    ends = partial(widened, looks=peak.looks)
    return {}, smallest_planted(prepared, at, token=peak.token, method=peak.method, ends=ends)


def _told(by_step: Mapping[int, Mapping[str, Any]], refused: Sequence[str]) -> Details:
    """Return what an oracle finds at the checkpoint that decides, as details."""
    return dict(_decided(by_step, refused))


def _decided(
    by_step: Mapping[int, Mapping[str, Any]], refused: Sequence[str]
) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return whether an oracle recognises batches, and its figure at the checkpoint that decides.

    It is blind only if it is at every checkpoint.

    Args:
        by_step: what it finds at each checkpoint where it can be evaluated.
        refused: why it cannot be, for each other checkpoint.
    """
    looks = len(by_step) + len(refused)
    found = {
        step: at_most(widened(Estimate(**one["estimate"]), looks), one["most"])
        for step, one in by_step.items()
    }
    if found:
        step = max(found, key=lambda one: (found[one].low, -one))
        if round(found[step].low, 3) > 0:  # as printed
            return ORACLE_SEES, (ORACLE, _figure(by_step, found, step))
    if refused:
        return ORACLE_UNKNOWN, (ORACLE, f"it cannot be evaluated, since {refused[0]}")
    step = max(found, key=lambda one: (found[one].high, -one))
    text = _figure(by_step, found, step)
    if found[step].high > CLEAR_NATS:
        return ORACLE_UNKNOWN, (ORACLE, f"{text}, and more records would narrow that")
    if any(one.high < 0 for one in found.values()):
        return ORACLE_UNKNOWN, (ORACLE, f"{text}, worse than a guess")
    return ORACLE_BLIND, (ORACLE, text)


def _figure(
    by_step: Mapping[int, Mapping[str, Any]], found: Mapping[int, Estimate], step: int
) -> str:
    one, most = found[step], by_step[step]["most"]
    return (
        f"it finds {one.value:.3f} nats ({one.low:.3f} to {one.high:.3f}) of at most "
        f"{most:.3f}, at sub-epoch {step}"
    )
