"""The page: records in, one HTML file out."""

import functools
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from leakgauge.core.checks import require
from leakgauge.inference.metrics import LEAKAGE
from leakgauge.inference.report import asking, choice, defenses, promises, prose
from leakgauge.inference.report.cells import Cell, cells, utility
from leakgauge.inference.report.verdict import CLEAR_AUROC, STRONG_AUROC, verdict
from leakgauge.report import charts, wording
from leakgauge.report.repeat import command_line
from leakgauge.results.measurements import (
    ACCUMULATED,
    MEASUREMENTS_FILE,
    REPORT_FILE,
    STACKED,
    Measurement,
    Run,
    read_measurements,
    read_run,
    write_text,
)

_ROWS = 400  # of the table of all rounds, over all tests: keeps the page far below 1 MB
_USED = 200  # rounds of which it is told what was used, over all tests that are shown at length
_GAUGE = (0.4, 1.0)  # the AUROCs at the two ends of a gauge


def write_report(folder: Path) -> Path:
    """Write ``report.html`` from a run's ``run.yaml`` and ``measurements.jsonl``.

    Raises:
        InputError: the folder holds no finished run.
    """
    run, records = read_run(folder), read_measurements(folder)
    require(
        bool(records),
        f"{str(folder / MEASUREMENTS_FILE)!r} is empty; the run ended before a figure",
    )
    path = folder / REPORT_FILE
    write_text(path, render(run, records))
    return path


def render(run: Run, records: Sequence[Measurement]) -> str:
    """One self-contained HTML page. The same records give the same bytes.

    Args:
        run: where the records come from.
        records: at least one.

    Raises:
        InputError: there is no record, or two are the same figure.
    """
    require(len(records) > 0, "got no records; a report needs at least one")
    tests = cells(records)
    floors = {metric: charts.common_floor(tests, metric) for metric in ("auroc", "success")}
    promised = promises.promises(run)
    shown = choice.drawn(tests)
    told = _step(shown, _USED)
    views = [
        _view(run, test, floors, f"c{i}", told if test in shown else 0)
        for i, test in enumerate(tests)
    ]
    judged = [view["verdict"] for view in views if view["verdict"] is not None]
    page = (
        environment()
        .get_template("page.html.j2")
        .render(
            run=run,
            versions=run.versions,
            first=records[0],
            views=views,
            judged=[view["verdict"] for view in views if view["verdict"] and view["shown"]],
            others=[view["verdict"] for view in views if view["verdict"] and not view["shown"]],
            chosen=choice.told(len(shown), len(tests)),
            summary=" ".join(
                [*([prose.summary(judged)] if len(judged) > 1 else []), *prose.unplayed(run, tests)]
            ),
            metrics=_metrics(tests),
            guess=_common_chance(tests),
            strong=STRONG_AUROC,
            clear=CLEAR_AUROC,
            defenses=_defenses(tests, records),
            stacked=any(when == STACKED for test in tests for _, when in test.figures),
            promises=promised,
            epsilon_notes=promises.epsilon_notes(promised),
            channel_notes=promises.channel_notes(promised),
            implied=promises.all_implied(run, tests),
            games=asking.rules(run, tests),
            knew=prose.knew(run, tests),
            knew_not=prose.knew_not(run),
            intervals=prose.interval_text(run, tests),
            utility=[(record, prose.utility_text(record)) for record in utility(records)],
            parts=prose.parts(run.data),
            rest=prose.other_facts(run.data),
            settings={"seed": records[0].seed, **run.settings},
            command=command_line(run),
            step=_step(tests, _ROWS),
            told=told,
        )
    )
    return re.sub(r"\n\s+<", "\n<", page)  # what the templates indent; a user's < is escaped


def _view(
    run: Run, test: Cell, floors: Mapping[str, float], name: str, told: int
) -> dict[str, Any]:
    """What the template shows of one test.

    Args:
        run: where it comes from.
        test: the test.
        floors: of the charts' axes, by metric.
        name: a word that no other test has.
        told: every how manieth round is told of; 0 for a test that is not shown at length.
    """
    return {
        "name": name,
        "test": test,
        "verdict": verdict(run, test),
        "shown": told > 0,
        "charts": _charts(test, floors, name) if told else [],
        "used": test.used(step=told) if told else {},
    }


def _defenses(tests: Sequence[Cell], records: Sequence[Measurement]) -> list[dict[str, Any]]:
    """What the template shows of each game's defenses; empty for a run without them."""
    return [
        {
            "panel": panel,
            "name": f"d{i}",
            "svg": charts.tradeoff(panel, name=f"d{i}-tradeoff"),
            "says": defenses.answer(panel),
            "chosen": defenses.chosen(panel),
            "caution": defenses.CAUTION,
        }
        for i, panel in enumerate(defenses.panels(tests, records))
    ]


def _charts(test: Cell, floors: Mapping[str, float], name: str) -> list[dict[str, Any]]:
    drawn: list[tuple[str, str, Markup | None]] = [
        (
            LEAKAGE[m] + " by round",
            _says(test, m),
            charts.over_rounds(test, m, floor=floors[m], name=f"{name}-{m}"),
        )
        for m in ("auroc", "success")
    ]
    drawn.append(
        (
            "ROC, true against false positive rate",
            _says(test, "auroc"),
            charts.roc(test, name=f"{name}-roc"),
        )
    )
    return [{"title": t, "says": says, "svg": svg} for t, says, svg in drawn if svg is not None]


def _says(test: Cell, metric: str) -> str:
    """A chart in words, for readers who do not see it."""
    said = f"{LEAKAGE[metric]} of the test {test.title}."
    single, whole = test.single(metric), test.at(metric, ACCUMULATED)
    if single:
        values = [record.estimate.value for record in single]
        said += (
            f" Single rounds from {wording.number(min(values))} to {wording.number(max(values))}."
        )
    if whole is not None:
        said += f" All rounds together {wording.number(whole.estimate.value)}."
    return f"{said} The table of all rounds has every figure."


def _metrics(tests: Sequence[Cell]) -> dict[str, str]:
    """Every metric of the run and its name, the known ones first."""
    found = dict.fromkeys(metric for test in tests for metric in test.metrics)
    order = [m for m in LEAKAGE if m in found] + [m for m in found if m not in LEAKAGE]
    return {metric: LEAKAGE.get(metric, wording.label(metric)) for metric in order}


def _common_chance(tests: Sequence[Cell]) -> dict[str, float]:
    """What guessing gives by metric, where it is the same in every test; else nothing."""
    found = {(m, record.chance) for test in tests for (m, _), record in test.figures.items()}
    common = dict(found)
    return common if len(common) == len(found) else {}


def _step(tests: Sequence[Cell], rows: int) -> int:
    """Every how manieth round is shown, so that a long run does not swell the page."""
    return max(1, math.ceil(sum(len(test.rounds) for test in tests) / rows))


def _along(value: float) -> str:
    """Where an AUROC stands on a gauge, as a CSS length."""
    low, high = _GAUGE
    return f"{100 * min(1.0, max(0.0, (value - low) / (high - low))):.2f}%"


@functools.cache
def environment() -> jinja2.Environment:
    """What the pages' templates know: filters, and that everything is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("leakgauge.report", "."),
        autoescape=True,  # for every template: names, values and notes are the user's
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": wording.number,
        "short": wording.short,
        "bits": promises.bits,
        "percent": wording.percent,
        "count": wording.count,
        "plain": wording.plain,
        "interval": wording.interval,
        "label": wording.label,
        "marked": wording.marked,
        "along": _along,
    }
    environment.globals["no_certificate"] = promises.NO_CERTIFICATE
    return environment
