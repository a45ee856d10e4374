"""Run a tiny audit of all six questions from the command line."""

from collections.abc import Sequence
from pathlib import Path

from support.command import Ended, run
from support.tables import frame

ASKS = ("property", "guarantee", "membership", "reconstruction", "layers", "timeline")
TINY = {
    "guarantee.canary": "random",
    "inference.rounds": 1,
    "inference.adversary": "energies",
    "inference.batch_size": 8,
    "inference.shadow": 200,
    "inference.trials": 300,
    "membership.adversary": "loss",
    "membership.rounds": 2,
    "reconstruction.images": 2,
    "layers.adversary": "forest",
    "layers.shadow_batches": 120,
    "layers.held_out": 60,
    "layers.rounds": 2,
    "layers.batch_size": 8,
    "layers.kernel_records": 100,
    "timeline.checkpoints": 3,
    "timeline.critic_iterations": 30,
    "timeline.iterations": 30,
    "timeline.images": 0,
    "timeline.batch_size": 10,
    "timeline.width": 64,
}


def audit_everything(
    folder: Path, *more: object, rows: int = 900, asks: Sequence[str] = ASKS
) -> tuple[Path, Ended]:
    """Ask all six questions about synthetic users; return the run's folder and its end."""
    table, out = folder / "people.csv", folder / "run"
    if not table.exists():
        frame(rows).to_csv(table, index=False)
    words: list[object] = ["audit", table, "--label", "income", "--secret", "sex"]
    words += ["--group", "person", "--trials", 100, "--hidden", 8, "--workers", 1, "--out", out]
    words += [part for ask in asks for part in ("--ask", ask)]
    asked = {"property": "inference"}
    keys = {asked.get(ask, ask) for ask in asks}
    settings = {name: one for name, one in TINY.items() if name.split(".")[0] in keys}
    words += [part for name, one in settings.items() for part in ("--set", f"{name}={one}")]
    return out, run(*words, *more)
