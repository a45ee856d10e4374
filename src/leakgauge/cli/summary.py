"""The result of a run as one JSON object."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from leakgauge.records import ACCUMULATED, Record, Run
from leakgauge.report import Cell, cells, utility


def as_json(run: Run, records: Sequence[Record], report: Path) -> dict[str, Any]:
    """Every cell with its accumulated and single-round figures and the model's utility."""
    accuracy = {(record.game, record.defense): _figure(record) for record in utility(records)}
    return {
        "label": run.settings["label"],
        "secret": run.settings["secret"],
        "seed": run.settings["seed"],
        "report": str(report),
        "cells": [
            {**_cell(cell), "utility": {"accuracy": accuracy.get((cell.game, cell.defense))}}
            for cell in cells(records)
        ],
    }


def _cell(cell: Cell) -> dict[str, Any]:
    return {
        "ask": cell.game,
        "defense": cell.defense,
        "knowledge": cell.knowledge,
        "adversary": cell.adversary,
        "trials": next(iter(cell.figures.values())).estimate.n,
        "accumulated": _figures(cell, ACCUMULATED),
        "rounds": [{"round": number, **_figures(cell, number)} for number in cell.rounds],
    }


def _figures(cell: Cell, when: int | str) -> dict[str, Any]:
    found = {metric: cell.at(metric, when) for metric in cell.metrics}
    return {metric: _figure(record) for metric, record in found.items() if record is not None}


def _figure(record: Record) -> dict[str, float]:
    estimate = record.estimate
    return {
        "value": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "chance": record.chance,
    }
