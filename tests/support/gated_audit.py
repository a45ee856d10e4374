"""Run a tiny audit for the rules of a build: a planted secret, and an independent one."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from leakgauge.core.rng import stream
from support.command import Ended, run
from support.tables import frame

SETTINGS = (
    "--label", "income", "--ask", "property", "--adversary", "energies", "--rounds", "1",
    "--trials", "200", "--batch-size", "4", "--shadow", "200", "--workers", "1",
)  # fmt: skip


def write_people(folder: Path) -> Path:
    """Write a table with a feature that copies ``smokes``, and none that depends on ``coin``."""
    people = frame(800).drop(columns=["person", "sex"])
    rng = stream(0, "secrets")
    smokes = rng.random(len(people)) < 0.5
    people["smokes"] = np.where(smokes, "yes", "no")
    people["copy"] = np.where(smokes, 5.0, -5.0)
    people["coin"] = np.where(rng.random(len(people)) < 0.5, "head", "tail")
    path = folder / "people.csv"
    people.to_csv(path, index=False)
    return path


def audit(table: Path, secret: str, out: Path, *words: object, ask: Sequence[str] = ()) -> Ended:
    other = {"smokes": "coin", "coin": "smokes"}[secret]
    drop = ("--drop", other)
    asks = [word for one in ask for word in ("--ask", one)]
    return run(
        "audit", table.name, "--secret", secret, *drop, *SETTINGS, *asks, "--out", out, *words,
        cwd=table.parent,
    )  # fmt: skip
