"""The command that repeats a run."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from leakgauge.results.measurements import Run

_PLAY = ("ask", "adversary", "batch_size", "rounds", "trials", "seed")
_DATA = ("label", "secret", "task", "group", "drop", "bins", "drop_missing")
OPTIONS = {
    "audit": (
        *(*_DATA, *_PLAY, "defense"),
        *("shadow", "batches", "stack", "ratio_bins", "candidates", "prior", "lr", "hidden"),
        *("device", "allow_loop"),
    ),
    "demo": _PLAY,
    "guarantee": (
        *("label", "attribute", "clip", "noise", "canary", "statistic", "mechanism", "trials"),
        *("delta", "hidden", "group", "drop", "bins", "drop_missing", "device", "seed"),
    ),
    "invert": (
        *("images", "method", "label", "batch_size", "local_steps", "local_lr", "simulate"),
        *("epochs", "matching", "iterations", "restarts", "labels", "net", "init", "weights"),
        *("hidden", "defense", "group", "drop", "bins", "drop_missing", "side", "lpips"),
        *("redact", "update", "task", "device", "seed"),
    ),
}
"""The settings that each command takes as options. The number of workers changes no figure."""


def command_line(run: Run) -> str:
    """The command that repeats the run, quoted for a shell; empty where no command does.

    >>> command_line(Run("audit", {"table": "my.csv", "label": "income", "ask": ["property"]}, {}))
    'leakgauge audit my.csv --label income --ask property'
    """
    settings, options = run.settings, OPTIONS.get(run.command, ())
    table, task = settings.get("table"), settings.get("task")
    words = ["leakgauge", run.command]
    if run.command != "demo" and table is not None:
        words.append(str(table))
    elif not options or (run.command in ("audit", "invert") and task is None):
        return ""
    left: set[str] = {"label"} if task is not None else set()  # the task has its own
    if settings.get("ask") == ["user"]:  # the secret is who it is, which --group says
        left.add("secret")
    for key in options:
        if key in settings and key not in left:
            words.extend(_option(key, settings[key]))
    return shlex.join(words)


def _option(key: str, value: Any) -> list[str]:
    flag = f"--{key.replace('_', '-')}"
    if value is None or value is False or value == "":
        return []
    if value is True:
        return [flag]
    if isinstance(value, Mapping):
        value = [f"{name}={item}" for name, item in value.items()]
    many = isinstance(value, Sequence) and not isinstance(value, str)
    return [word for item in (value if many else [value]) for word in (flag, str(item))]
