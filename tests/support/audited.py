"""Run a tiny audit of all six questions from the command line."""

from collections.abc import Iterable
from pathlib import Path

from support.command import Ended, run
from support.tables import frame

KEYS = {
    "property": "inference",
    **{one: one for one in ("guarantee", "membership", "reconstruction", "layers", "timeline")},
}
"""The key of each question by its word."""

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
    folder: Path, *more: object, rows: int = 900, asks: Iterable[str] = KEYS
) -> tuple[Path, Ended]:
    """Ask all six questions about synthetic users; return the run's folder and its end."""
    table, out = folder / "people.csv", folder / "run"
    if not table.exists():
        frame(rows).to_csv(table, index=False)
    words: list[object] = ["audit", table, "--label", "income", "--secret", "sex"]
    words += ["--group", "person", "--trials", 100, "--hidden", 8, "--workers", 1, "--out", out]
    words += [part for ask in asks for part in ("--ask", ask)]
    of = {KEYS[ask] for ask in asks}
    settings = [f"{name}={one}" for name, one in TINY.items() if name.split(".")[0] in of]
    words += [part for one in settings for part in ("--set", one)]
    return out, run(*words, *more)
