"""Reads the folders of two finished audits and compares them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from leakgauge.core.checks import require
from leakgauge.report.differences.audited import Audited
from leakgauge.report.differences.compared import Differences, compare_audits
from leakgauge.report.differences.pairing import Metrics
from leakgauge.runs.audit import UNFINISHED, AuditRun
from leakgauge.runs.page import read_audit
from leakgauge.runs.question import Question
from leakgauge.runs.store import read_description


def compare_runs(
    before: AuditRun,
    after: AuditRun,
    questions: Mapping[str, Question],
    *,
    defenses: Sequence[str] = (),
    against: str = "",
) -> Differences:
    """Return the differences of two audits, after minus before.

    Args:
        before: the first audit.
        after: the second.
        questions: all that are installed, by name.
        defenses: defenses of the second audit; empty for all.
        against: defense of the first audit; empty for the one that fits.

    Raises:
        InputError: an audit is not finished, a question is not installed, a defense is unknown, or
            the audits have no figure in common.
    """
    one, other = audited_of(before), audited_of(after)
    asked = {each.question for run in (before, after) for each in run.measurements}
    for name in sorted(asked):
        require(name in questions, f"the question {name!r} is not installed; install its package")
    metrics = metrics_of({name: questions[name] for name in asked})
    return compare_audits(one, other, metrics, defenses=defenses, against=against)


def metrics_of(questions: Mapping[str, Question]) -> dict[str, Metrics]:
    """Return the metrics of each question, by name."""
    return {name: one.metrics for name, one in questions.items()}


def read_finished(folder: Path) -> AuditRun:
    """Return the finished audit of a folder.

    Raises:
        InputError: the folder does not exist, does not contain an audit, or is not finished.
    """
    shown = repr(str(folder))
    require(folder.is_dir(), f"no such folder: {shown}; expected the --out of a finished audit")
    description = read_description(folder)
    require(
        not description.is_grid,
        f"{shown} holds a grid, whose own page compares its cells; expected the --out of one "
        "audit, made by leakgauge audit",
    )
    return read_audit(folder, description)


def require_finished(run: AuditRun) -> None:
    """Refuse an audit with questions that are neither answered nor refused.

    Raises:
        InputError: it is not finished.
    """
    left = [key for key, why in run.refused.items() if why == UNFINISHED]
    require(
        not left and not run.stopped,
        f"{str(run.path)!r} is not finished ({', '.join(left)}); repeat its command with --out "
        f"{run.path} to resume",
    )


def audited_of(run: AuditRun) -> Audited:
    """Return the parts of an audit that a comparison needs.

    Raises:
        InputError: it is not finished.
    """
    require_finished(run)
    described = run.description
    return Audited(
        name=run.path.name,
        answers={key: answer.measurements for key, answer in run.answers.items()},
        settings={key: described.settings[key] for key in run.answers if key in described.settings},
        identities=described.identities,
        data=described.data,
        versions=described.versions,
        repeat=described.repeat,
        missing=run.missing,
    )
