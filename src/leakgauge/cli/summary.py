"""The result of a run as one JSON object, and what its defenses promise in plain lines."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from leakgauge.inference.report.cells import cells
from leakgauge.inference.report.promises import promises
from leakgauge.report import NO_CERTIFICATE, Cell, guarantee, implied, utility
from leakgauge.results.measurements import ACCUMULATED, STACKED, Measurement, Run


def as_json(run: Run, records: Sequence[Measurement], report: Path) -> dict[str, Any]:
    """Every cell with its accumulated and single-round figures and the model's utility."""
    accuracy = {(record.game, record.defense): _figure(record) for record in utility(records)}
    return {
        "label": run.settings["label"],
        "secret": run.settings["secret"],
        "seed": run.settings["seed"],
        "report": str(report),
        "cells": [
            {**_cell(run, cell), "utility": {"accuracy": accuracy.get((cell.game, cell.defense))}}
            for cell in cells(records)
        ],
    }


def promise_lines(run: Run) -> list[str]:
    """What the defenses promise, for the terminal; none where nothing is promised."""
    lines = []
    for one in promises(run):
        said = [] if one.epsilon is None else [f"{one.epsilons} (delta {one.epsilon['delta']:g})"]
        said.append(one.channel["text"] if one.channel else one.note)
        lines.append(f"{one.defense} promises, {one.game} inference: {'. '.join(said)}")
    notes = [one.epsilon["note"] for one in promises(run) if one.epsilon is not None]
    return [*lines, *dict.fromkeys(notes)]


def information_lines(run: Run, records: Sequence[Measurement]) -> list[str]:
    """What the measured success of each test implies, for the terminal."""
    found = [one for cell in cells(records) if (one := implied(run, cell)) is not None]
    lines = [f"The success of {one.test.title} implies {one.least}." for one in found]
    return [*lines, NO_CERTIFICATE] if lines else []


def _cell(run: Run, cell: Cell) -> dict[str, Any]:
    promised = guarantee(run, cell.game, cell.defense)
    return {
        "ask": cell.game,
        "defense": cell.defense,
        "knowledge": cell.knowledge,
        "adversary": cell.adversary,
        "trials": next(iter(cell.figures.values())).estimate.n,
        "accumulated": _figures(cell, ACCUMULATED),
        **({"stacked": _figures(cell, STACKED)} if cell.has(STACKED) else {}),
        "rounds": [{"round": number, **_figures(cell, number)} for number in cell.rounds],
        "bounds": _bounds(run, cell, promised),
        **({"epsilon": promised["epsilon"]} if promised.get("epsilon") else {}),
    }


def _bounds(run: Run, cell: Cell, promised: Mapping[str, Any]) -> dict[str, Any]:
    """The least information that the success implies, and the most where that is known."""
    found, channel = implied(run, cell), promised.get("channel")
    said = [] if found is None else [found.text]
    said.append(channel["text"] if channel else promised.get("note", ""))
    return {
        "information_nats": None
        if found is None
        else {"value": found.value, "low": found.low, "high": found.high},
        "certificate": channel,
        "text": " ".join(said).strip(),
    }


def _figures(cell: Cell, when: int | str) -> dict[str, Any]:
    found = {metric: cell.at(metric, when) for metric in cell.metrics}
    return {metric: _figure(record) for metric, record in found.items() if record is not None}


def _figure(record: Measurement) -> dict[str, float]:
    estimate = record.estimate
    return {
        "value": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "chance": record.chance,
    }
