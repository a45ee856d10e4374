"""The command to run after an audit: with defenses if it leaks, else with what narrows it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from leakgauge.inference.catalog import USER
from leakgauge.inference.report.verdict import (
    InferenceVerdict,
    few_seeds,
    limited_by_records,
    more_seeds,
    smallest_visible,
)
from leakgauge.inference.spec import BATCH_SIZES, TRIALS, InferenceSpec
from leakgauge.report.levels import LEAKS
from leakgauge.results.measurements import Run
from leakgauge.runs.question import Question
from leakgauge.runs.repeat import repeat_audit, spec_of_run, with_fixes
from leakgauge.runs.spec import NONE

DEFENSES = ("prune:rate=0.99", "dpsgd:clip=2,noise=0.1")
"""Defenses to try first: one costs little accuracy, the other has a guarantee."""

SEES_LITTLE = 0.6
"""A test that cannot see an AUROC of this size needs more trials."""

MORE = 4
"""Four times the trials, or batches of a quarter, halve the width of an interval."""


def next_command(run: Run, answered: Sequence[InferenceVerdict], question: Question) -> str:
    """Return the command that answers more than this run; empty if none is known.

    Args:
        run: the run with its settings.
        answered: verdicts of all tests.
        question: question of the run.
    """
    spec = _spec(run)
    if spec is None:
        return ""
    if any(one.level in LEAKS for one in answered):
        if set(spec.defense) != {NONE}:
            return ""
        return _command(question, replace(spec, defense=(NONE, *DEFENSES)))
    if any(one.headline == few_seeds(run) for one in answered):
        return _command(question, replace(spec, seeds=more_seeds(run)))
    blind = {
        one.test.game
        for one in answered
        if one.level == "inconclusive"
        or (one.level == "none" and smallest_visible(one.auroc, one.chance) > SEES_LITTLE)
    }
    if not blind:
        return ""
    if not all(limited_by_records(run, game) for game in blind):
        trials = MORE * max(map(spec.trials_of, spec.ask))
        return _command(question, replace(spec, trials=trials))
    size = min(spec.batch_of(game) for game in blind)
    if size == 1 or USER in blind:
        return ""
    return _command(question, replace(spec, batch_size=max(1, size // MORE)))


def _spec(run: Run) -> InferenceSpec | None:
    """Return the settings of a run; None if they do not name the data."""
    settings = with_fixes(run)
    if settings.get("ask") == ["user"]:  # --group names the secret
        settings.pop("secret", None)
    for name, usual in (("batch_size", BATCH_SIZES), ("trials", TRIALS)):
        if _of_games(settings.get(name), settings.get("ask", ()), usual):
            settings.pop(name)
    return spec_of_run(settings, InferenceSpec)


def _of_games(value: Any, asks: Sequence[str], usual: Mapping[str, int]) -> bool:
    """Return whether a number is the default of the games, which a command need not state."""
    return isinstance(value, Mapping) or (
        bool(asks) and all(usual.get(ask) == value for ask in asks)
    )


def _command(question: Question, spec: InferenceSpec) -> str:
    return repeat_audit("audit", {question.name: (question, spec)}, InferenceSpec)
