"""The result of a run as one JSON object."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from leakgauge.records import ACCUMULATED, Record, Run

Key = tuple[str, str, str, str]


def as_json(run: Run, records: Sequence[Record], report: Path) -> dict[str, Any]:
    """Every cell with its accumulated and single-round figures and the model's utility."""
    utility = {(r.game, r.defense): _figure(r) for r in records if r.metric == "accuracy"}
    cells: dict[Key, dict[str, Any]] = {}
    for record in records:
        if record.metric == "accuracy":
            continue
        key = (record.game, record.defense, record.knowledge, record.adversary)
        cell = cells.setdefault(
            key,
            {
                "ask": record.game,
                "defense": record.defense,
                "knowledge": record.knowledge,
                "adversary": record.adversary,
                "trials": record.estimate.n,
                "accumulated": {},
                "rounds": {},
                "utility": {"accuracy": utility.get((record.game, record.defense))},
            },
        )
        if record.round == ACCUMULATED:
            cell["accumulated"][record.metric] = _figure(record)
        else:
            found = cell["rounds"].setdefault(record.round, {"round": record.round})
            found[record.metric] = _figure(record)
    for cell in cells.values():
        cell["rounds"] = list(cell["rounds"].values())
    return {
        "label": run.settings["label"],
        "secret": run.settings["secret"],
        "seed": run.settings["seed"],
        "report": str(report),
        "cells": list(cells.values()),
    }


def _figure(record: Record) -> dict[str, float]:
    estimate = asdict(record.estimate)
    return {**{key: estimate[key] for key in ("value", "low", "high")}, "chance": record.chance}
