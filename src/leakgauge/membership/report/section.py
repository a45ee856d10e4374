"""Membership's section of a report; it reads measurements and computes none."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from markupsafe import Markup

from leakgauge.membership.catalog import ABOUT
from leakgauge.membership.metrics import LEAKAGE, METRICS, NEEDS
from leakgauge.membership.report.as_json import lines
from leakgauge.membership.report.charts import norms_by_epoch, odds
from leakgauge.membership.report.defenses import defense_rows, effect, next_command
from leakgauge.membership.report.tests import (
    attack_tests,
    classes,
    exposed,
    leading,
    norms,
    setting_of,
    trained,
)
from leakgauge.membership.report.verdict import (
    MembershipVerdict,
    about_white_box,
    situation,
    verdict,
    when,
)
from leakgauge.report.charts import roc
from leakgauge.report.facts import other_facts
from leakgauge.report.grouping import Test
from leakgauge.report.levels import CLEAR_AUROC, STRONG_AUROC, auroc_rule, gauge
from leakgauge.report.section import LEVELS, ONE_TRAINING, Chart, Row, Section
from leakgauge.report.templates import render
from leakgauge.report.utility import about_utility, useless_models, utilities
from leakgauge.results.scores import AUROC
from leakgauge.runs.question import Answer, Question
from leakgauge.runs.repeat import with_fixes

PARTS = (
    "records",
    "known_members",
    "validation_members",
    "target_members",
    "known_non_members",
    "validation_non_members",
    "target_non_members",
    "shadow",
    "users",
)
"""Sizes of the data, in the order of the report."""

SPECTRAL = "spectral"
"""The attack that encodes records without known members."""

_OF_OWN_CODE = ["as its code says"] * 2
"""Knowledge and observation of an attack of the user."""

MOST_CLASSES = 12
"""Number of classes to show from each end of a table."""

LEGEND = Markup(
    '<p class="legend small"><span class="key single">members</span>'
    '<span class="key chance">others</span></p>'
)


def section(answer: Answer, question: Question, folder: Path) -> Section:
    """Return the section of an answer; equal measurements give equal bytes.

    Raises:
        InputError: two measurements are the same figure.
    """
    run, measurements, at = answer.run, answer.measurements, question.name
    tests = attack_tests(measurements)
    views = [
        _view(test, tests, answer, folder, name=f"{at}-c{number}")
        for number, test in enumerate(leading(tests))
    ]
    judged = [one["verdict"] for one in views]
    judged.sort(key=lambda one: (LEVELS[one.level], one.auroc.value), reverse=True)
    rows, learned = defense_rows(tests, measurements), utilities(measurements)
    accuracies = [(one, trained(measurements, one.defense)) for one in learned]
    html = render(
        "leakgauge.membership.report",
        "section.html.j2",
        {
            "at": at,
            "run": run,
            "views": views,
            "situation": situation(run.settings),
            "white_box": about_white_box(tests),
            "missing": answer.missing,
            "metrics": {name: METRICS[name].label for name in LEAKAGE},
            "needs": NEEDS,
            "groups": _grouped(tests),
            "about": {
                one.adversary: ABOUT.get(one.adversary.partition(":")[0], _OF_OWN_CODE)
                for one in tests
            },
            "defenses": rows,
            "effect": effect(rows),
            "learned": [(one, about_utility(one), exact) for one, exact in accuracies],
            "parts": {name: run.data[name] for name in PARTS if name in run.data},
            "rest": other_facts({k: v for k, v in run.data.items() if k not in PARTS}),
            "strong": STRONG_AUROC,
            "clear": CLEAR_AUROC,
            "rule": auroc_rule(),
        },
    )
    return Section(
        name=at,
        title=question.title,
        html=html,
        rows=_rows(answer, judged),
        tests=[_row(verdict(one)) for one in tests] if len(tests) > 1 else (),
        lines=lines(answer),
        missing=answer.missing,
        warnings=[*run.warnings, *useless_models(learned)],
        effect=effect(rows),
        caveat="" if run.settings.get("checkpoint") else ONE_TRAINING,
        next_command=next_command(with_fixes(run), judged, question),
        nav=_nav(at, defended=bool(rows), learned=bool(learned)),
    )


def _view(
    test: Test, tests: Sequence[Test], answer: Answer, folder: Path, *, name: str
) -> dict[str, Any]:
    """Return the template's values for a headline."""
    found, each = verdict(test), classes(test)
    return {
        "name": name,
        "verdict": found,
        "gauge": gauge(found.auroc, found.chance),
        "charts": [*_charts(test, answer, name), *_codes(test, tests, name)],
        "classes": each[:MOST_CLASSES] + each[MOST_CLASSES:][-MOST_CLASSES:],
        "at_risk": exposed(test, folder),
    }


def _charts(test: Test, answer: Answer, name: str) -> list[Chart]:
    one, drawn = test.whole(AUROC), []
    if one is not None and one.curve:
        says = "The ROC of the attack; the table has its AUROC and two of its points."
        svg = roc(one.curve, name=f"{name}-roc")
        drawn.append(Chart("ROC, true against false positive rate", says, svg))
    if one is not None and one.histogram:
        says = "Histogram of the attack's log odds of members and of others."
        svg = odds(one.histogram, name=f"{name}-odds")
        drawn.append(Chart("Log odds of members and of others", says, svg, LEGEND))
    counted = when(answer.run.settings)
    by_epoch = norms(answer.measurements, test.defense)
    found = norms_by_epoch(by_epoch, name=f"{name}-norms", counted=counted)
    if found is not None:
        says = "The mean gradient norm of members and of others over the training."
        caption = f"Gradient norm of the last layer by {counted}"
        drawn.append(Chart(caption, says, found, LEGEND))
    return drawn


def _codes(test: Test, tests: Sequence[Test], name: str) -> list[Chart]:
    """Return a chart of the unsupervised attack's codes in the same setting (Figure 5)."""
    found = [
        one
        for one in tests
        if (one.defense, one.knowledge) == (test.defense, test.knowledge)
        and one.adversary.partition(":")[0] == SPECTRAL
    ]
    one = found[0].whole(AUROC) if found and found[0] is not test else None
    if one is None or one.histogram is None:
        return []
    says = "Histogram of the codes of members and of others."
    drawn = odds(one.histogram, name=f"{name}-codes")
    return [Chart(f"Codes of {SPECTRAL}, which knows no member", says, drawn, LEGEND)]


def _grouped(tests: Sequence[Test]) -> dict[str, list[Test]]:
    groups: dict[str, list[Test]] = {}
    for test in tests:
        groups.setdefault(setting_of(test), []).append(test)
    return groups


def _rows(answer: Answer, judged: Sequence[MembershipVerdict]) -> list[Row]:
    if not judged:
        text = " ".join(answer.missing) or "No attack was completed."
        return [Row("membership", "Not measured", "unknown", text)]
    return [replace(_row(judged[0]), test="")]


def _row(one: MembershipVerdict) -> Row:
    return Row(
        ask=one.test.game,
        verdict=one.headline,
        level=one.level,
        text=one.text,
        metric=METRICS[AUROC].label,
        estimate=one.auroc,
        chance=one.chance,
        strength=one.strength,
        test=one.test.who,
    )


def _nav(name: str, *, defended: bool, learned: bool) -> list[tuple[str, str]]:
    parts = {
        "verdict": "Verdict",
        **({"defenses": "Defenses"} if defended else {}),
        "figures": "Figures",
        "at-risk": "Records at risk",
        "adversary": "Adversary",
        **({"utility": "Utility"} if learned else {}),
        "data": "Data",
        "settings": "Settings",
    }
    return [(f"{name}-{anchor}", text) for anchor, text in parts.items()]
