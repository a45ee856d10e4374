"""Makes the audit card of a finished run: copies figures of the run, and computes none."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pydantic

from leakgauge.core.checks import InputError, require
from leakgauge.core.files import read_text
from leakgauge.core.outside import parse_json
from leakgauge.evidence.card_file import covered_files
from leakgauge.evidence.card_model import (
    Card,
    CardAnswered,
    CardData,
    CardPage,
    CardRule,
    CardThreat,
    ControlFigure,
    ControlOf,
    DataOf,
    Decision,
    Unit,
)
from leakgauge.evidence.card_results import (
    baselines,
    coverage,
    effects,
    epsilons,
    exposure,
    figure,
    results,
    worst,
)
from leakgauge.evidence.context import Context
from leakgauge.evidence.controls import Control, outcome_of, read_controls
from leakgauge.evidence.evaluation import evaluate_rules
from leakgauge.evidence.gate import COMPARED_FILE, GATE_FILE, GateDecision
from leakgauge.evidence.parts import parts_of_audit
from leakgauge.evidence.rule import parse_rule
from leakgauge.report.utility import useless_models, utilities
from leakgauge.results.measurements import MEASUREMENTS_FILE, REPORT_FILE
from leakgauge.results.metrics import Metric, metric_named
from leakgauge.runs.assessment import Assessment, Threat
from leakgauge.runs.audit import AuditRun
from leakgauge.runs.exposure import EXPOSURE_FILE, exposure_csv, exposures_of
from leakgauge.runs.page import read_audit, render_audit, sections_of
from leakgauge.runs.question import Answer, Question, answering
from leakgauge.runs.store import Store, read_description

UNKNOWN = "the package of this question does not say it"

LIMITS = (
    "The card is about the run that it names: these data, this training, these adversaries.",
    "A test that finds nothing is evidence against the attacks that were run, and no others.",
    "An interval that holds chance is no proof of safety; compare the smallest detectable leak.",
    "Names of NIST AI 100-2 and EDPB Opinion 28/2024 are as commonly mapped. A card is no legal "
    "assessment.",
    "The seal and the checksums find changes. They do not prove who made the card; sign it for "
    "that.",
)


def make_card(
    folder: Path, questions: Mapping[str, Question], context: Context, *, redact: bool = False
) -> Card:
    """Return the card of a finished run, without page and seal.

    Args:
        folder: the ``--out`` of the run.
        questions: questions by name.
        context: declarations of the user.
        redact: whether to withhold the user or record most at risk.

    Raises:
        InputError: the folder holds a grid, is unfinished or damaged, or its files disagree:
            figures, page and decision must be those of the cells.
    """
    audit = _read(folder)
    _require_own(audit, questions)
    controls, data = read_controls(folder, audit.description, questions), audit.description.data
    return Card(
        seal="",
        versions=dict(audit.description.versions),
        command=audit.description.command,
        context=context,
        data=CardData(**{name: str(data.get(name, "")) for name in ("name", "fingerprint")}),
        unit_of_privacy=_unit(audit.answers.values()),
        coverage=coverage(audit, questions),
        questions=[
            _answered(Store(folder), key, answer, questions, audit, redact=redact)
            for key, answer in audit.answers.items()
        ],
        exposure=[exposure(one, redact=redact) for one in exposures_of(audit)],
        controls=[_control(one, questions) for one in controls],
        limits=list(LIMITS),
        decision=read_decision(folder),
        files=covered_files(folder),
        page=CardPage(name="", sha256=""),
    )


def _read(folder: Path) -> AuditRun:
    require(folder.is_dir(), f"no such folder: {str(folder)!r}; expected the --out of a run")
    description = read_description(folder)
    require(
        not description.is_grid,
        f"{str(folder)!r} holds a grid of {len(description.cells)} cells; a card is about one "
        "release: run leakgauge audit with the settings of the cell that you release (its "
        "cell.yaml has them), and make the card of that",
    )
    audit = read_audit(folder, description)
    for name in (REPORT_FILE, MEASUREMENTS_FILE):
        require(
            (folder / name).is_file(),
            f"no {name} in {str(folder)!r}; repeat the command of the run to make it anew",
        )
    return audit


def _require_own(audit: AuditRun, questions: Mapping[str, Question]) -> None:
    """Refuse a page or a decision that does not follow from the cells.

    Raises:
        InputError: one of them was changed, or another version wrote it.
    """
    sections = sections_of(audit, questions)
    require(
        read_text(audit.path / REPORT_FILE) == render_audit(audit, sections),
        f"{str(audit.path / REPORT_FILE)!r} was changed, or another version wrote it: it is not "
        f"the page of these figures; leakgauge report {audit.path} writes it anew",
    )
    found, path = exposures_of(audit), audit.path / EXPOSURE_FILE
    require(
        (read_text(path) if path.is_file() else "") == (exposure_csv(found) if found else ""),
        f"{str(path)!r} was changed, or another version wrote it: it does not hold the records of "
        f"these cells; leakgauge report {audit.path} writes it anew",
    )
    path = audit.path / GATE_FILE
    if path.is_file():
        rules = [parse_rule(one.rule) for one in read_decision(audit.path).rules]
        gate = evaluate_rules(rules, parts_of_audit(audit, sections, questions))
        require(
            parse_json(read_text(path)) == json.loads(json.dumps(gate.as_json())),
            f"{str(path)!r} was changed, or another version wrote it: the rules decide otherwise "
            f"on these figures; leakgauge report {audit.path} --fail-if RULE evaluates them anew",
        )


def _answered(
    store: Store,
    key: str,
    answer: Answer,
    questions: Mapping[str, Question],
    audit: AuditRun,
    *,
    redact: bool,
) -> CardAnswered:
    question = answering(key, questions)
    if question is None:
        raise InputError(f"the question {key!r} is not installed; install its package")
    said = Assessment(Threat(UNKNOWN, (), ()), (), no_worst=UNKNOWN)
    if hasattr(question, "assessment"):  # not so in a package without cards
        said = question.assessment(answer, store.folder(key))
    made = results(said.findings, question.metrics)
    several = ("knows", "does", "lacks", "nist", "edpb")
    threat = {name: list(getattr(said.threat, name)) for name in several}
    return CardAnswered(
        key=key,
        title=question.title,
        data=_data_of(answer.run.data),
        settings=dict(audit.description.settings[key]),
        threat=CardThreat(goal=said.threat.goal, **threat),
        results=made,
        baselines=baselines(said.baselines),
        worst=worst(said.worst, redact=redact),
        no_worst=said.no_worst,
        epsilons=epsilons(said.promises),
        defenses=effects(made),
        limits=list(said.limits),
        notes=list(answer.run.notes),
        warnings=[*answer.run.warnings, *useless_models(utilities(answer.measurements))],
        missing=list(answer.missing),
    )


_OWN_PLACE = ("records", "columns", "users")


def _data_of(facts: Mapping[str, Any]) -> DataOf:
    numbers = {
        name: value
        for name, value in facts.items()
        if isinstance(value, int) and not isinstance(value, bool)
    }
    return DataOf(
        **{name: numbers.get(name) for name in _OWN_PLACE},
        secret_values=dict(facts.get("secret_values", {})),
        parts={name: value for name, value in numbers.items() if name not in _OWN_PLACE},
    )


def _unit(answers: Iterable[Answer]) -> Unit:
    known = [one for one in answers if one.run.data.get("users") is not None]
    if not known:
        return Unit(unit="record", why="the run knows no users, so records are split one by one")
    if any(one.run.settings.get("by_user") is False for one in known):
        why = "users are known, but records were split, so a user may be on two sides of a split"
        return Unit(unit="record", why=why)
    why = (
        "users are known, and no user is on two sides of a split; figures and epsilons name their "
        "own unit"
    )
    return Unit(unit="user", why=why)


def _control(one: Control, questions: Mapping[str, Question]) -> ControlOf:
    question = answering(one.question, questions)
    metrics: Mapping[str, Metric] = {} if question is None else question.metrics
    return ControlOf(
        key=one.question,
        kind=one.kind,
        outcome=outcome_of(one),
        passed=one.passed,
        changed=one.changed,
        reason=one.reason,
        figures=[
            ControlFigure(
                ask=each.figure.game,
                adversary=each.figure.adversary,
                title=metric_named(each.figure.metric, metrics).label,
                figure=figure(each.figure.estimate, open_end=each.open_end),
                chance=each.figure.chance,
                passed=each.passed,
            )
            for each in one.outcomes
        ],
    )


class _Gate(pydantic.BaseModel):
    """The keys of ``gate.json`` and ``compared.json`` that a card needs."""

    decision: GateDecision
    rules: Sequence[dict[str, Any]] = ()


def read_decision(folder: Path) -> Decision:
    """Return the decision of a run's gate from ``gate.json``, and that of rules on two runs.

    Raises:
        InputError: a gate did not write a file.
    """
    own, between = (_read_gate(folder / name) for name in (GATE_FILE, COMPARED_FILE))
    two_runs = None if between is None else between[0]
    if own is None:
        return Decision(decision="no rule was given", rules=[], two_runs=two_runs)
    return Decision(decision=own[0], rules=own[1], two_runs=two_runs)


def _read_gate(path: Path) -> tuple[GateDecision, list[CardRule]] | None:
    if not path.is_file():
        return None
    try:
        gate = _Gate.model_validate(parse_json(read_text(path)))
        rules = [{name: one[name] for name in ("rule", "outcome", "figures")} for one in gate.rules]
        return gate.decision, [CardRule.model_validate(one) for one in rules]
    except (ValueError, KeyError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{str(path)!r} is damaged ({type(error).__name__}); repeat the command of the run"
        ) from error
