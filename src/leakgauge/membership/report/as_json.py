"""The figures as plain values, for ``--json``, and as paragraphs for the terminal."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from leakgauge.membership.report.defenses import defense_rows, effect
from leakgauge.membership.report.tests import (
    attack_tests,
    classes,
    exposed,
    leading,
    norms,
    trained,
)
from leakgauge.membership.report.verdict import about_white_box, verdict
from leakgauge.report.facts import plain_figure
from leakgauge.report.grouping import Test
from leakgauge.report.section import Line
from leakgauge.report.utility import useless_models, utilities, utility_line
from leakgauge.report.wording import quoted
from leakgauge.results.measurements import ACCUMULATED, Measurement
from leakgauge.results.scores import ADVANTAGE, AUROC, smallest_detectable
from leakgauge.runs.question import Answer

Plain = dict[str, Any]


def as_json(answer: Answer, folder: Path) -> Plain:
    """Return the headlines, the figures of every attack, and the model's utility.

    Raises:
        InputError: two measurements are the same figure.
    """
    run, measurements = answer.run, answer.measurements
    tests, learned = attack_tests(measurements), utilities(measurements)
    return {
        "label": run.settings.get("label", ""),
        "seed": run.settings["seed"],
        "headline": [_headline(one, measurements, folder) for one in leading(tests)],
        "white_box": about_white_box(tests),
        "warnings": [*run.warnings, *useless_models(learned)],
        "cells": [_cell(one, learned) for one in tests],
        "missing": list(answer.missing),
    }


def lines(answer: Answer) -> list[Line]:
    """Return the paragraphs that the terminal prints."""
    tests = attack_tests(answer.measurements)
    judged = [verdict(one) for one in leading(tests)]
    about = effect(defense_rows(tests, answer.measurements))
    texts = [
        about_white_box(tests),
        *map(utility_line, utilities(answer.measurements)),
        "" if about is None else about.text,
    ]
    return [
        *(Line(quoted(one.text), one.level, one.headline, one.title) for one in judged),
        *(Line(quoted(text)) for text in texts if text),
    ]


def _headline(test: Test, measurements: Sequence[Measurement], folder: Path) -> Plain:
    judged, auroc, gained = verdict(test), test.whole(AUROC), test.whole(ADVANTAGE)
    assert auroc is not None
    exact = trained(measurements, test.defense)
    return {
        "ask": test.game,
        "defense": test.defense,
        "knowledge": test.knowledge,
        "adversary": test.adversary,
        "held_out_auroc": judged.held_out,
        "auroc": plain_figure(auroc),
        "advantage": None if gained is None else plain_figure(gained),
        "verdict": judged.headline,
        "text": judged.text,
        "smallest_detectable": smallest_detectable(judged.auroc, judged.chance),
        "train_accuracy": None if exact is None else plain_figure(exact),
        "gradient_norms": {
            metric: {str(one.round): one.estimate.value for one in each}
            for metric, each in norms(measurements, test.defense).items()
        },
        "at_risk": [asdict(one) for one in exposed(test, folder)],
    }


def _cell(test: Test, learned: Sequence[Measurement]) -> Plain:
    return {
        "ask": test.game,
        "defense": test.defense,
        "knowledge": test.knowledge,
        "adversary": test.adversary,
        "trials": next(iter(test.figures.values())).estimate.n,
        "accumulated": {
            metric: plain_figure(one)
            for (metric, when), one in test.figures.items()
            if when == ACCUMULATED and ": " not in metric
        },
        "rounds": [],
        "classes": {name: plain_figure(one) for name, one in classes(test)},
        "utility": {
            one.metric: plain_figure(one) for one in learned if one.defense == test.defense
        },
    }
