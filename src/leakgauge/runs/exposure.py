"""Exposure by record of an audit: read from its cells, and written as ``exposure.csv``."""

from collections.abc import Sequence

import pandas as pd

from leakgauge.core.files import write_text
from leakgauge.results.exposure import Exposure, exposures
from leakgauge.results.record_tests import read_record_tests
from leakgauge.runs.audit import AuditRun
from leakgauge.runs.store import Store, files_of

EXPOSURE_FILE = "exposure.csv"


def exposures_of(audit: AuditRun) -> list[Exposure]:
    """Return the tests of single records of all answers, joined by row, one for each defense.

    Raises:
        InputError: a file of a cell is damaged.
    """
    store = Store(audit.path)
    found = [read_record_tests(files_of(store, name)) for name in audit.answers]
    return exposures(test for tests in found for test in tests)


def exposure_table(found: Sequence[Exposure]) -> pd.DataFrame:
    """Return one line for each attacked record and defense, the most exposed record first."""
    tables = [one.to_pandas() for one in found]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def exposure_csv(found: Sequence[Exposure]) -> str:
    """Return the table as the text of ``exposure.csv``."""
    return exposure_table(found).to_csv(index=False, float_format="%.6g", lineterminator="\n")


def write_exposure(audit: AuditRun, found: Sequence[Exposure]) -> None:
    """Write ``exposure.csv`` into the folder of an audit; remove it where no record was tested."""
    path = audit.path / EXPOSURE_FILE
    if found:
        write_text(path, exposure_csv(found))
    else:
        path.unlink(missing_ok=True)
