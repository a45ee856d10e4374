"""The page of an attempt to rebuild records: figures, curves, and the records themselves."""

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image
from torch import Tensor

from leakgauge.inference.report.cells import Cell, cells
from leakgauge.inference.report.prose import other_facts, parts, unplayed
from leakgauge.inversion.metrics.table import METRICS
from leakgauge.inversion.report.kept import TRUTH, Rows, pictures, rows
from leakgauge.inversion.report.wording import draw_curves, line_style, sentences, title
from leakgauge.report.page import environment
from leakgauge.report.repeat import command_line
from leakgauge.results.measurements import (
    ACCUMULATED,
    REPORT_FILE,
    Measurement,
    Run,
    write_text,
)
from leakgauge.results.metrics import titles

CURVES = ("psnr", "loss")
TITLES = titles(METRICS)
_COLUMN = "columns: "


def write_inversion(folder: Path, run: Run, records: Sequence[Measurement]) -> Path:
    """Write ``report.html`` into the run's folder, with the records that stand there.

    Raises:
        InputError: what was kept of the records is damaged.
    """
    path = folder / REPORT_FILE
    attempts = len(cells(records))
    kept = pictures(folder, attempts), rows(folder, attempts)
    write_text(path, render_inversion(run, records, *kept))
    return path


def render_inversion(
    run: Run,
    records: Sequence[Measurement],
    images: Mapping[str, Tensor],
    table: Mapping[str, Rows],
) -> str:
    """One self-contained HTML page. The same records give the same bytes."""
    tests = cells(records)
    curves = {name: draw_curves(tests, name, name=f"c-{name}") for name in CURVES}
    return (
        environment()
        .get_template("inversion.html.j2")
        .render(
            run=run,
            versions=run.versions,
            first=records[0],
            told=[
                *sentences(records),
                *unplayed(run, tests, option="method", field="adversary"),
            ],
            titles=[title(test) for test in tests],
            figures=_figures(tests),
            metrics=_labels(tests),
            columns=_columns(tests),
            rounds=_rounds(tests),
            curves={name: svg for name, svg in curves.items() if svg is not None},
            legend=_legend(tests),
            gallery=_gallery(images),
            true_known=_true_known(images, table),
            table=table,
            redacted=bool(run.settings.get("redact")),
            parts=parts(run.data),
            rest=other_facts(run.data),
            settings=run.settings,
            command=command_line(run),
        )
    )


def _labels(tests: Sequence[Cell]) -> dict[str, str]:
    """Labels of the metrics that an attempt has, by name."""
    return {name: label for name, label in TITLES.items() if any(_at(t, name) for t in tests)}


def _at(test: Cell, metric: str) -> Measurement | None:
    return test.at(metric, ACCUMULATED)


def _figures(tests: Sequence[Cell]) -> list[dict[str, Measurement]]:
    """Of each attempt, the figures that have a column of the table."""
    return [
        {name: record for name in TITLES if (record := _at(test, name)) is not None}
        for test in tests
    ]


def _columns(tests: Sequence[Cell]) -> dict[str, list[Measurement | None]]:
    """Of a table: how often each original column was right, for each attempt."""
    names = dict.fromkeys(m for test in tests for m in test.metrics if m.startswith(_COLUMN))
    return {name.removeprefix(_COLUMN): [_at(test, name) for test in tests] for name in names}


def _legend(tests: Sequence[Cell]) -> list[tuple[str, str, str]]:
    """Name, colour and dash of each attempt that has a curve."""
    return [
        (title(test), *line_style(number))
        for number, test in enumerate(tests)
        if any((one := _at(test, name)) and one.curve for name in CURVES)
    ]


def _rounds(tests: Sequence[Cell]) -> list[tuple[str, int, Measurement]]:
    """PSNR of single epochs, where there are several."""
    return [
        (title(test), when, record)
        for test in tests
        for when in test.rounds
        if (record := test.at("psnr", when)) is not None
    ]


def _gallery(images: Mapping[str, Tensor]) -> list[list[str]]:
    """PNGs as data addresses: a row for the truth where it is known, one for each attempt."""
    order = [name for name in images if name == TRUTH]
    order += sorted((name for name in images if name != TRUTH), key=int)
    return [[_png(image) for image in images[name]] for name in order]


def _true_known(images: Mapping[str, Tensor], table: Mapping[str, Any]) -> bool:
    """Whether true records stand on the page; of an update from outside nobody knows them."""
    return TRUTH in images or TRUTH in table


def _png(image: Tensor) -> str:
    """``[c, h, w]`` uint8 as an address that holds the picture."""
    pixels: Any = image.permute(1, 2, 0).numpy()
    stream = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(stream, "PNG")
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()
