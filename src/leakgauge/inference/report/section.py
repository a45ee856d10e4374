"""The section of inference in a report, made from measurements."""

from collections.abc import Sequence
from pathlib import Path

from leakgauge.inference.metrics import BASELINES, METRICS
from leakgauge.inference.report import sentences, threat_model
from leakgauge.inference.report.best_defense import effect
from leakgauge.inference.report.defenses import DefenseTable, defense_tables
from leakgauge.inference.report.games import rules
from leakgauge.inference.report.next_command import next_command
from leakgauge.inference.report.plain import lines
from leakgauge.inference.report.promises import (
    NO_CERTIFICATE,
    all_implied,
    channel_notes,
    epsilon_notes,
    promises,
)
from leakgauge.inference.report.rows import (
    rows,
    rows_of_baselines,
    rows_of_tests,
    rows_of_users,
    worst_by_ask,
)
from leakgauge.inference.report.titles import (
    adversary_tests,
    baselines_of,
    by_value,
    metric_titles,
    of_value,
)
from leakgauge.inference.report.verdict import InferenceVerdict
from leakgauge.inference.report.views import (
    USED_ROUNDS,
    by_urgency,
    common_chance,
    defense_views,
    how_selected,
    selected,
    step_for,
    test_views,
)
from leakgauge.report.facts import other_facts, parts
from leakgauge.report.grouping import Test
from leakgauge.report.levels import CLEAR_AUROC, LEAKS, STRONG_AUROC, auroc_rule
from leakgauge.report.section import DefenseEffect, Section
from leakgauge.report.templates import render
from leakgauge.report.utility import about_ranking, about_utility, useless_models, utilities
from leakgauge.results.measurements import STACKED
from leakgauge.runs.question import Answer, Question

TABLE_ROUNDS = 400
"""Maximum number of rows in the table of all rounds; keeps the page far below 1 MB."""


def section(answer: Answer, question: Question, folder: Path) -> Section:
    """Return the section of an answer; the same measurements give the same bytes.

    Args:
        answer: answer of the question.
        question: inference, with the prefix of the anchors as its name.
        folder: not used, since all values come from the measurements.

    Raises:
        InputError: two measurements are the same figure.
    """
    run, measurements = answer.run, answer.measurements
    tests = adversary_tests(measurements)
    shown = selected(tests)
    views = test_views(answer, tests, shown, at=question.name)
    ranked = by_urgency(views)
    every = [view.verdict for view in ranked if view.verdict is not None]
    lead = [view.verdict for view in ranked if view.leads and view.verdict is not None]
    tables = defense_tables(tests, measurements)
    promised = promises(run)
    learned, baselines = utilities(measurements), baselines_of(measurements)
    secret, again = run.settings.get("secret", ""), question.name[-1:].isdigit()
    html = render(
        "leakgauge.inference.report",
        "section.html.j2",
        {
            "at": question.name,
            "run": run,
            "secret": secret,
            "views": views,
            "ranked": ranked,
            "summary": sentences.summary(every),
            "missing": answer.missing,
            "chosen": how_selected(len(shown), len(tests)),
            "metrics": metric_titles(tests),
            "baselines": baselines,
            "baseline_titles": {
                name: METRICS[name].title
                for name in BASELINES
                if any(name in found for found in baselines.values())
            },
            "by_value": {
                name: [(of_value(one), one) for one in several]
                for name, several in by_value(measurements).items()
            },
            "guess": common_chance(tests),
            "strong": STRONG_AUROC,
            "clear": CLEAR_AUROC,
            "rule": auroc_rule(),
            "leaks": LEAKS,
            "defenses": defense_views(tables, at=question.name),
            "stacked": any(when == STACKED for test in tests for _, when in test.figures),
            "promises": promised,
            "epsilon_notes": epsilon_notes(promised),
            "channel_notes": channel_notes(promised),
            "implied": all_implied(run, tests),
            "no_certificate": NO_CERTIFICATE,
            "rules": rules(run, tests),
            "known": threat_model.known(run, tests),
            "unknown": threat_model.unknown(run),
            "intervals": sentences.about_intervals(run, tests),
            "learned": [
                (one, about_utility(one) + about_ranking(measurements, one)) for one in learned
            ],
            "parts": parts(run.data),
            "rest": other_facts(run.data),
            "step": step_for(tests, TABLE_ROUNDS),
            "used_step": step_for(shown, USED_ROUNDS),
        },
    )
    return Section(
        name=question.name,
        title=f"{question.title} {secret}".strip() if again else question.title,
        html=html,
        rows=rows(answer, lead),
        tests=[
            *rows_of_tests(every),
            *rows_of_users(measurements, lead),
            *rows_of_baselines(measurements),
        ],
        lines=lines(run, measurements),
        missing=answer.missing,
        warnings=[
            *run.warnings,
            *useless_models(learned),
            *sentences.explained_by_labels(lead, baselines),
        ],
        effect=_effect(tables, lead),
        next_command=next_command(run, lead, question),
        caveat=sentences.one_training(run, lead),
        nav=_nav(question.name, tests, bool(tables), bool(promised), bool(learned)),
    )


def _effect(
    tables: Sequence[DefenseTable], lead: Sequence[InferenceVerdict]
) -> DefenseEffect | None:
    """Return the effect of the best defense in the game that leaks most."""
    order = sorted(worst_by_ask(lead).values(), key=lambda one: -one.strength)
    games = [one.test.game for one in order]
    ranked = sorted(tables, key=lambda table: games.index(table.game))
    effects = (effect(table) for table in ranked)
    return next((one for one in effects if one is not None), None)


def _nav(
    name: str, tests: Sequence[Test], defended: bool, promised: bool, learned: bool
) -> list[tuple[str, str]]:
    some = bool(tests)
    parts = (
        ("verdict", "Verdict", True),
        ("defenses", "Defenses", some and defended),
        ("figures", "Figures", some),
        ("promises", "Promises", some and promised),
        ("adversary", "Adversary", some),
        ("utility", "Utility", learned),
        ("data", "Data", True),
        ("settings", "Settings", True),
    )
    return [(f"{name}-{anchor}", text) for anchor, text, present in parts if present]
