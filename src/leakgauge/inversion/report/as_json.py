"""The figures as plain values, for ``--json``."""

from pathlib import Path
from typing import Any

from leakgauge.inversion.metrics.table import (
    CELLS,
    CERTIFIED,
    COLUMNS,
    FELL_SHORT,
    GAIN,
    LABEL_ACCURACY,
    LAYER_CERTIFIED,
    LAYER_INPUTS,
    LEAST_SURE,
    LOSS,
    LPIPS,
    MATCHED,
    MOST_SURE,
    PSNR,
    RECORDS,
    SEQUENCES,
    SSIM,
    TOKEN_ACCURACY,
)
from leakgauge.inversion.report.ladder import Step, breaking, ladder_of
from leakgauge.inversion.report.threat_model import threat_model
from leakgauge.inversion.run.kept import read_facts
from leakgauge.inversion.words import ALIGNED, ASSUMED, LAYER
from leakgauge.report.facts import plain_interval
from leakgauge.report.grouping import Test, group_tests
from leakgauge.results.measurements import Measurement, Run
from leakgauge.runs.question import Answer

Plain = dict[str, Any]

_SOMETIMES = (
    *(RECORDS, CELLS, CERTIFIED, FELL_SHORT, LAYER_INPUTS, LAYER_CERTIFIED),
    *(TOKEN_ACCURACY, SEQUENCES),
)
"""Figures that only some records or methods have."""


def as_json(answer: Answer, folder: Path) -> Plain:
    """Return the figures of the first attempt, and of all attempts if there are several.

    Raises:
        InputError: the kept facts are damaged.
    """
    tests = group_tests(answer.measurements)
    facts = read_facts(folder, len(tests))
    who = {"threat_model": threat_model(answer.run)}
    if answer.run.settings.get("update") is not None:
        return {**who, **_of_update(answer.run, tests[0], facts[0])}
    each = [_of_attempt(answer.run, *one) for one in zip(tests, facts, strict=True)]
    if len(each) == 1:
        return {**who, **each[0]}
    steps = ladder_of(tests)
    at = breaking(steps)
    ladder = {"ladder": list(map(_rung, steps)), "breaks_at": None if at is None else at.name}
    return {**who, **each[0], "results": each, **(ladder if steps else {})}


def _of_attempt(run: Run, test: Test, facts: Plain) -> Plain:
    return {
        "method": test.adversary,
        "defense": test.defense,
        "knowledge": test.knowledge,
        "images": run.settings["images"],
        "iterations": facts["iterations"],
        "psnr": _ends(test.at(PSNR)),
        "ssim": _ends(test.at(SSIM)),
        "lpips": _ends(test.at(LPIPS)),
        "label_accuracy": _values(test, LABEL_ACCURACY).get(""),
        "columns": _values(test, f"{COLUMNS}: "),
        **{name: _ends(test.at(name)) for name in _SOMETIMES if test.at(name)},
        **_layer(test),
        **{
            name: found for name in (MOST_SURE, LEAST_SURE) if (found := _values(test, f"{name}: "))
        },
        "matching": _values(test, "matching_"),
        "joint": _joint(test),
        "single_epochs": facts["single_epochs"],
        "chance": facts["chance"],
        "baselines": facts["baselines"],
        "best_guess": facts["best_guess"],
        "gain": _ends(test.at(GAIN)),
        "seconds_per_iteration": _seconds(test, facts["iterations"]),
        "warnings": facts["warnings"],
        "per_image": facts["per_image"],
    }


def _rung(step: Step) -> Plain:
    return {
        "rung": step.name,
        "clients": step.words,
        PSNR: _ends(step.psnr),
        LPIPS: _ends(step.lpips),
        GAIN: _ends(step.gain),
        "broken": step.broken,
    }


def _of_update(run: Run, test: Test, facts: Plain) -> Plain:
    loss = test.at(LOSS)
    assert loss is not None
    iterations = run.settings["iterations"] or 0  # a method without a search has none
    certified, in_layer = test.at(CERTIFIED), test.at(LAYER_CERTIFIED)
    matched = test.at(MATCHED)
    aligned = None if matched is None else matched.details.get(ALIGNED)
    return {
        "method": test.adversary,
        "records": loss.estimate.n,
        "iterations": iterations,
        "loss": loss.estimate.value,
        "matched": None if matched is None else matched.estimate.value,
        "matched_in_direction": None if aligned is None else float(aligned),
        "assumed": loss.details.get(ASSUMED),
        "labels": facts["labels"],
        "warnings": facts["warnings"],
        "seconds_per_iteration": _seconds(test, iterations),
        **({} if certified is None else {"certified": bool(certified.estimate.value)}),
        **({} if in_layer is None else {LAYER_CERTIFIED: bool(in_layer.estimate.value)}),
        **_layer(test),
    }


def _layer(test: Test) -> Plain:
    """Return the name of the layer whose inputs were recovered; empty for other methods."""
    details = next(iter(test.figures.values())).details
    return {LAYER: details[LAYER]} if LAYER in details else {}


def _joint(test: Test) -> Plain | None:
    """Return the rules that combined several epochs; None with a single one."""
    details = next(iter(test.figures.values())).details
    if "joint" not in details:
        return None
    return {
        "matching": details["matching"],
        "rule": details["joint"],
        "later_epochs_weigh": float(details["later"]),
    }


def _ends(one: Measurement | None) -> dict[str, float] | None:
    return None if one is None else plain_interval(one.estimate)


def _values(test: Test, prefix: str) -> dict[str, float]:
    """Return the values of metrics that begin with ``prefix``, by the rest of the name."""
    measured = {name: test.at(name) for name in test.metrics if name.startswith(prefix)}
    return {
        name.removeprefix(prefix): one.estimate.value
        for name, one in measured.items()
        if one is not None
    }


def _seconds(test: Test, iterations: int) -> float:
    return next(iter(test.figures.values())).seconds / max(iterations, 1)
