"""Measures how much private information leaks through the gradients of a training run."""

from leakgauge.core.checks import InputError
from leakgauge.core.types import Dataset, Schema, Task
from leakgauge.data import (
    Roles,
    Split,
    Table,
    encode,
    from_arrays,
    make_table,
    open_data,
    read_arrays,
    read_table,
    split_records,
)
from leakgauge.inference import (
    Auto,
    Discriminant,
    Encoder,
    Energies,
    Forest,
    Logistic,
    Matching,
    PcaForest,
)
from leakgauge.inference.run import Settings, Stage, audit, stage
from leakgauge.inference.run.plan import Plan
from leakgauge.inference.run.prepare import from_source, from_table, from_task
from leakgauge.report import render, verdicts, write_report
from leakgauge.results.measurements import Estimate, Measurement, Run, read_measurements, read_run

__version__ = "0.1.0"

__all__ = [
    "Auto",
    "Dataset",
    "Discriminant",
    "Encoder",
    "Energies",
    "Estimate",
    "Forest",
    "InputError",
    "Logistic",
    "Matching",
    "Measurement",
    "PcaForest",
    "Plan",
    "Roles",
    "Run",
    "Schema",
    "Settings",
    "Split",
    "Stage",
    "Table",
    "Task",
    "audit",
    "encode",
    "from_arrays",
    "from_source",
    "from_table",
    "from_task",
    "make_table",
    "open_data",
    "read_arrays",
    "read_measurements",
    "read_run",
    "read_table",
    "render",
    "split_records",
    "stage",
    "verdicts",
    "write_report",
]
