"""The values of the most exposed records, which a report shows only if the user asks for them."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from leakgauge.core.checks import InputError, require
from leakgauge.core.files import read_text, write_text
from leakgauge.data.source import Source
from leakgauge.results.exposure import Exposure
from leakgauge.results.record_tests import DATA

VALUES_FILE = "exposed-values.csv"
ROW = "row in the data"
"""Name of the first column: the row in the data, counted from 0."""


def refuse_values(source: Source) -> None:
    """Refuse data whose records have no values to show in a table.

    Raises:
        InputError: the data are images, or records of a task.
    """
    require(
        source.pixels is None and source.task is None,
        "--show-values shows the rows of a table, and these data are "
        f"{'images' if source.task is None else 'records of a task'}; leave it out, and look the "
        "row numbers of exposure.csv up in the data",
    )


def keep_values(folder: Path, found: Sequence[Exposure], source: Source, count: int) -> None:
    """Write the values of the ``count`` most exposed records under each defense into a folder."""
    in_data = [one.rows[:count] for one in found if one.numbering == DATA]
    if not in_data:
        return
    rows = np.unique(np.concatenate(in_data))
    values = source.frame.iloc[rows]
    values.insert(0, ROW, rows, allow_duplicates=True)
    write_text(folder / VALUES_FILE, values.to_csv(index=False, lineterminator="\n"))


def forget_values(folder: Path) -> None:
    """Remove the values that an earlier command kept."""
    (folder / VALUES_FILE).unlink(missing_ok=True)


def values_shown(folder: Path) -> pd.DataFrame | None:
    """Return the kept values as text, indexed by row; None where the user did not ask for them.

    Raises:
        InputError: the file is damaged.
    """
    path = folder / VALUES_FILE
    if not path.is_file():
        return None
    try:
        read = pd.read_csv(io.StringIO(read_text(path)), dtype=str, keep_default_na=False)
        read.index = pd.Index(read.iloc[:, 0].astype(int))
        return read.iloc[:, 1:]
    except (ValueError, IndexError) as error:
        raise InputError(
            f"{str(path)!r} is damaged; remove it, and the report is without"
        ) from error
