"""Measures how much private information leaks through the gradients of a training run."""

from leakgauge.audit import Settings, Stage, audit, stage
from leakgauge.checks import InputError
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
from leakgauge.experiment.plan import Plan
from leakgauge.experiment.prepare import from_source, from_table, from_task
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
from leakgauge.records import Estimate, Record, Run, read_records, read_run
from leakgauge.report import render, verdicts, write_report
from leakgauge.types import Dataset, Schema, Task

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
    "PcaForest",
    "Plan",
    "Record",
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
    "read_records",
    "read_run",
    "read_table",
    "render",
    "split_records",
    "stage",
    "verdicts",
    "write_report",
]
