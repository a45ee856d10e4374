"""The answer as plain values for ``--json`` and as paragraphs for the terminal."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from leakgauge.inference.report.best_defense import answer as best_defense
from leakgauge.inference.report.defenses import defense_tables
from leakgauge.inference.report.promises import (
    NO_CERTIFICATE,
    all_implied,
    guarantee,
    implied,
    promises,
)
from leakgauge.inference.report.rows import worst_by_ask
from leakgauge.inference.report.sentences import one_training
from leakgauge.inference.report.titles import (
    adversary_tests,
    baselines_of,
    by_value,
    in_order,
    leading,
    most_at_risk_of,
    of_value,
    reading_of,
    title,
)
from leakgauge.inference.report.verdict import InferenceVerdict, smallest_visible, verdict, verdicts
from leakgauge.inference.run.over_seeds import BY_SEED
from leakgauge.report.facts import plain_figure
from leakgauge.report.grouping import Test
from leakgauge.report.section import Line
from leakgauge.report.utility import useless_models, utilities, utility_line
from leakgauge.report.wording import quoted
from leakgauge.results.measurements import ACCUMULATED, CHOSEN, STACKED, Measurement, Run, rounds_of
from leakgauge.results.metrics import OF_CLASSES
from leakgauge.results.scores import ADVANTAGE, AUROC
from leakgauge.runs.question import Answer

FEW = 3
"""Maximum number of tests for which the terminal prints the implied information."""


def to_json(answer: Answer, folder: Path) -> dict[str, Any]:
    """Return the headline of each game, every test with its figures, and the model's utility."""
    run, measurements = answer.run, answer.measurements
    learned = utilities(measurements)
    utility: dict[tuple[str, str], dict[str, Any]] = {}
    for one in (*learned, *(each for each in measurements if each.metric in OF_CLASSES)):
        utility.setdefault((one.game, one.defense), {})[one.metric] = plain_figure(one)
    return {
        "label": run.settings["label"],
        "secret": run.settings["secret"],
        "seed": run.settings["seed"],
        "headline": _headline(run, measurements),
        "caveat": one_training(run, _worst(run, measurements)),
        "warnings": [*run.warnings, *useless_models(learned)],
        "cells": [
            {**_test(run, test), "utility": utility.get((test.game, test.defense), {})}
            for test in adversary_tests(measurements)
        ],
    }


def _headline(run: Run, measurements: Sequence[Measurement]) -> list[dict[str, Any]]:
    """Return one entry for each game: the worst of its leading tests."""
    return [_entry(one, measurements) for one in _worst(run, measurements)]


def _worst(run: Run, measurements: Sequence[Measurement]) -> list[InferenceVerdict]:
    each = [verdict(run, test) for test in leading(adversary_tests(measurements))]
    return [*worst_by_ask([one for one in each if one is not None]).values()]


def _entry(one: InferenceVerdict, measurements: Sequence[Measurement]) -> dict[str, Any]:
    of_test = by_value(measurements).get(one.title, [])
    values = {of_value(each): plain_figure(each) for each in of_test}
    worst = most_at_risk_of(measurements, one.test)
    risk = worst and {"user": worst.details["user"], "success": plain_figure(worst)}
    baselines = baselines_of(measurements).get(one.test.game, {})
    auroc, gained = one.test.whole(AUROC), one.test.whole(ADVANTAGE)
    assert auroc is not None
    return {
        "ask": one.test.game,
        "secret": auroc.secret,
        "defense": one.test.defense,
        "knowledge": one.test.knowledge,
        "adversary": one.test.adversary,
        "reading": reading_of(auroc),
        "auroc": plain_figure(auroc),
        "advantage": None if gained is None else plain_figure(gained),
        "verdict": one.headline,
        "text": one.text,
        "smallest_detectable": smallest_visible(one.auroc, one.chance),
        **({"most_at_risk": risk} if risk else {}),
        "baselines": {name: plain_figure(each) for name, each in baselines.items()},
        **({"values": values} if values else {}),
        **({"by_seed": auroc.details[BY_SEED]} if BY_SEED in auroc.details else {}),
    }


def lines(run: Run, measurements: Sequence[Measurement]) -> list[Line]:
    """Return the paragraphs that the terminal prints."""
    tests = adversary_tests(measurements)
    verdict_lines = [
        Line(quoted(one.text), one.level, one.headline, one.title)
        for one in verdicts(run, measurements)
    ]
    texts = [
        *map(utility_line, utilities(measurements)),
        *promise_lines(run),
        *(information_lines(run, tests) if len(tests) <= FEW else []),
        *map(best_defense, defense_tables(tests, measurements)),
    ]
    return [*verdict_lines, *(Line(quoted(text)) for text in texts)]


def promise_lines(run: Run) -> list[str]:
    """Return the promises of the defenses, if any."""
    promised = promises(run)
    texts = []
    for one in promised:
        parts = [] if one.epsilon is None else [f"{one.epsilons} (delta {one.epsilon['delta']:g})"]
        parts.append(one.channel["text"] if one.channel else one.note)
        texts.append(f"{one.defense} promises, {one.game} inference: {'. '.join(parts)}")
    notes = [one.epsilon["note"] for one in promised if one.epsilon is not None]
    return [*texts, *dict.fromkeys(notes)]


def information_lines(run: Run, tests: Sequence[Test]) -> list[str]:
    """Return the information that the measured success of each test implies."""
    texts = [
        f"The success of {title(one.test)} implies {one.least}." for one in all_implied(run, tests)
    ]
    return [*texts, NO_CERTIFICATE] if texts else []


def _test(run: Run, test: Test) -> dict[str, Any]:
    promised = guarantee(run, test.game, test.defense)
    first = [{"rounds": rounds_of(when), **_figures(test, when)} for when in test.first]
    return {
        "ask": test.game,
        "defense": test.defense,
        "knowledge": test.knowledge,
        "adversary": test.adversary,
        "trials": next(iter(test.figures.values())).estimate.n,
        **_chosen(test),
        "accumulated": _figures(test, ACCUMULATED),
        **({"stacked": _figures(test, STACKED)} if test.has(STACKED) else {}),
        "rounds": [{"round": number, **_figures(test, number)} for number in test.rounds],
        **({"first_rounds": first} if first else {}),
        "bounds": _bounds(run, test, promised),
        **({"epsilon": promised["epsilon"]} if promised.get("epsilon") else {}),
    }


def _chosen(test: Test) -> dict[str, Any]:
    """Return the reading that held-out shadow data favour, with its held-out AUROC."""
    auroc = test.at(AUROC, CHOSEN)
    if auroc is None:
        return {}
    held_out = {"reading": reading_of(auroc), "held_out_auroc": auroc.held_out}
    return {"chosen": {**held_out, **_figures(test, CHOSEN)}}


def _bounds(run: Run, test: Test, promised: Mapping[str, Any]) -> dict[str, Any]:
    """Return the least information that the success implies, and the most if it is known."""
    least, channel = implied(run, test), promised.get("channel")
    texts = [] if least is None else [least.text]
    texts.append(channel["text"] if channel else promised.get("note", ""))
    nats = least and {"value": least.value, "low": least.low, "high": least.high}
    return {"information_nats": nats, "certificate": channel, "text": " ".join(texts).strip()}


def _figures(test: Test, when: int | str) -> dict[str, Any]:
    figures = {metric: test.at(metric, when) for metric in in_order(test.metrics)}
    return {metric: plain_figure(one) for metric, one in figures.items() if one is not None}
