"""The figures as plain values, for ``--json``."""

from pathlib import Path
from typing import Any

from leakgauge.inversion.metrics.table import (
    COLUMNS,
    GAIN,
    LABEL_ACCURACY,
    LOSS,
    LPIPS,
    PSNR,
    SEQUENCES,
    SSIM,
    TOKEN_ACCURACY,
)
from leakgauge.inversion.report.ladder import Step, breaking, ladder_of
from leakgauge.inversion.run.kept import read_facts
from leakgauge.report.grouping import Test, group_tests
from leakgauge.results.measurements import Estimate, Run
from leakgauge.runs.question import Answer

Plain = dict[str, Any]


def to_json(answer: Answer, folder: Path) -> Plain:
    """Return the figures of the first attempt, and of all attempts if there are several.

    Raises:
        InputError: the kept facts are damaged.
    """
    tests = group_tests(answer.measurements)
    facts = read_facts(folder, len(tests))
    if answer.run.settings.get("update") is not None:
        return _of_update(answer.run, tests[0], facts[0])
    each = [_of_attempt(answer.run, *one) for one in zip(tests, facts, strict=True)]
    steps = ladder_of(tests)
    if len(each) == 1:
        return each[0]
    at = breaking(steps)
    ladder: Plain = {
        "ladder": [_rung(step) for step in steps],
        "breaks_at": None if at is None else at.name,
    }
    return {**each[0], "results": each, **(ladder if steps else {})}


def _of_attempt(run: Run, test: Test, facts: Plain) -> Plain:
    return {
        "method": test.adversary,
        "defense": test.defense,
        "knowledge": test.knowledge,
        "images": run.settings["images"],
        "iterations": facts["iterations"],
        "psnr": _ends(test, PSNR),
        "ssim": _ends(test, SSIM),
        "lpips": _ends(test, LPIPS),
        "label_accuracy": _values(test, LABEL_ACCURACY).get(""),
        "columns": _values(test, f"{COLUMNS}: "),
        **{name: _ends(test, name) for name in (TOKEN_ACCURACY, SEQUENCES) if test.at(name)},
        "matching": _values(test, "matching_"),
        "joint": _joint(test),
        "single_epochs": facts["single_epochs"],
        "chance": facts["chance"],
        "baselines": facts["baselines"],
        "best_guess": facts["best_guess"],
        "gain": _ends(test, GAIN),
        "seconds_per_iteration": _seconds(test, facts["iterations"]),
        "warnings": facts["warnings"],
        "per_image": facts["per_image"],
    }


def _rung(step: Step) -> Plain:
    return {
        "rung": step.name,
        "clients": step.words,
        **{
            name: None if one is None else _of(one.estimate)
            for name, one in ((PSNR, step.psnr), (LPIPS, step.lpips), (GAIN, step.gain))
        },
        "broken": step.broken,
    }


def _of_update(run: Run, test: Test, facts: Plain) -> Plain:
    loss = _estimate(test, LOSS)
    assert loss is not None
    iterations = run.settings["iterations"]
    return {
        "method": test.adversary,
        "records": loss.n,
        "iterations": iterations,
        "loss": loss.value,
        "labels": facts["labels"],
        "warnings": facts["warnings"],
        "seconds_per_iteration": _seconds(test, iterations),
    }


def _estimate(test: Test, metric: str) -> Estimate | None:
    measurement = test.at(metric)
    return None if measurement is None else measurement.estimate


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


def _ends(test: Test, metric: str) -> dict[str, float] | None:
    one = _estimate(test, metric)
    return None if one is None else _of(one)


def _of(one: Estimate) -> dict[str, float]:
    return {"value": one.value, "low": one.low, "high": one.high}


def _values(test: Test, prefix: str) -> dict[str, float]:
    """Return the values of metrics that begin with ``prefix``, by the rest of the name."""
    names = [name for name in test.metrics if name.startswith(prefix)]
    estimates = {name.removeprefix(prefix): _estimate(test, name) for name in names}
    return {name: one.value for name, one in estimates.items() if one is not None}


def _seconds(test: Test, iterations: int) -> float:
    return next(iter(test.figures.values())).seconds / max(iterations, 1)
