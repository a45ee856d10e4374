"""The paragraphs that follow from a run's settings."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from leakgauge.records import Record, Run
from leakgauge.report.cells import Cell
from leakgauge.report.verdict import LEAKS, Verdict
from leakgauge.report.wording import count, percent, plain

PARTS = ("records", "columns", "private", "public", "test", "persons", "blocks")
"""Keys of a run's data that are sizes, in the order in which they are shown."""


def summary(found: Sequence[Verdict]) -> str:
    """How many tests found something, where there are several."""
    leaks = sum(one.level in LEAKS for one in found)
    invalid = sum(one.level == "below" for one in found)
    said = [f"{leaks} of {len(found)} tests found leakage" if leaks else "No test found leakage"]
    if leaks and leaks + invalid < len(found):
        said.append(f"{len(found) - leaks - invalid} found none")
    if invalid:
        said.append(f"{invalid} {'is' if invalid == 1 else 'are'} not valid")
    return "; ".join(said) + "."


def knew(run: Run, tests: Sequence[Cell]) -> list[str]:
    """What every adversary of the run had."""
    ask = run.settings
    told = [
        "The gradients it is to judge, as a server sees them that collects them from its clients.",
        f"The model: its architecture and its parameters at {_each_round(ask)}.",
        f"The learning algorithm: the loss{_learning(ask)}.",
        _shadow(run),
        f"The prior: how often each value of the secret is met ({plain(ask['prior'])})."
        if ask.get("prior") is not None
        else "The prior: how often each value of the secret is met.",
    ]
    if any(test.defense != "none" for test in tests):
        told.append(
            "The defense only where its knowledge is called adaptive: then it imitated the "
            "defense too. A static adversary expected undefended gradients."
        )
    return told


def knew_not(run: Run) -> list[str]:
    """What was kept from it."""
    private = run.data.get("private")
    group = run.settings.get("group")
    apart = "Public (shadow) and private records are disjoint"
    apart += f", and no `{group}` has records on two sides." if group else "."
    size = f" {count(private)}" if private is not None else ""
    return [f"The{size} private records, and which of them are in a batch. {apart}"]


def interval_text(run: Run, tests: Sequence[Cell]) -> list[str]:
    """How the intervals are made, and what they do not cover."""
    records = [record for test in tests for record in test.figures.values()]
    shown = sorted({record.estimate.confidence for record in records})
    blocks = run.data.get("blocks")
    into = f"{count(blocks)} disjoint blocks" if blocks is not None else "disjoint blocks"
    text = [
        f"The private records are cut into {into}. Each trial draws its batch within one block. "
        f"The {' and '.join(percent(level) for level in shown)} intervals come from resampling "
        "whole blocks (a cluster bootstrap), so trials that share records do not make an interval "
        "too narrow.",
        "An interval covers the choice of the private records and of the trials. It does not "
        "cover another model, another training run or a better adversary.",
    ]
    if len(tests) > 1:
        text.append(
            "Each interval stands for itself. Of many tests without any leakage a few still lie "
            "wholly above chance by luck."
        )
    return text


def utility_text(record: Record) -> str:
    """Whether the model learnt anything, in one sentence."""
    estimate = record.estimate
    figures = (
        f"{percent(estimate.value)} of the test records are classified rightly "
        f"({percent(estimate.confidence)} interval {percent(estimate.low)} to "
        f"{percent(estimate.high)}); always naming the most frequent class gives "
        f"{percent(record.chance)}."
    )
    if estimate.low > record.chance:
        return figures
    return f"{figures} So the model has not learnt more than the most frequent class."


def command_line(run: Run) -> str:
    """The command that repeats the run, quoted for a shell.

    >>> command_line(Run("audit", {"label": "income", "ask": ["property"]}, {"name": "my.csv"}))
    'leakgauge audit my.csv --label income --ask property'
    """
    if isinstance(run.settings.get("command_line"), str):
        return str(run.settings["command_line"])
    words = ["leakgauge", run.command]
    if run.command != "demo" and run.data.get("name") is not None:
        words.append(str(run.data["name"]))
    for key, value in run.settings.items():
        words.extend(_option(key, value))
    return shlex.join(words)


def parts(data: Mapping[str, Any]) -> dict[str, Any]:
    """The sizes of the data and its parts."""
    return {key: data[key] for key in PARTS if data.get(key) is not None}


def other_facts(data: Mapping[str, Any]) -> dict[str, Any]:
    """What else is known of the data, without what has a place of its own."""
    placed = {*PARTS, "secret_values", "fingerprint"}
    return {key: value for key, value in data.items() if key not in placed}


def _option(key: str, value: Any) -> list[str]:
    flag = f"--{key.replace('_', '-')}"
    if value is None or value is False:
        return []
    if value is True:
        return [flag]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [word for item in value for word in (flag, str(item))]
    return [flag, plain(value) if isinstance(value, Mapping) else str(value)]


def _each_round(ask: Mapping[str, Any]) -> str:
    rounds = ask.get("rounds")
    if rounds == 1:
        return "the one round"
    return "each round" if rounds is None else f"each of the {rounds} rounds"


def _learning(ask: Mapping[str, Any]) -> str:
    known = ""
    if ask.get("lr") is not None:
        known += f", the learning rate {plain(ask['lr'])}"
    if ask.get("batch_size") is not None:
        known += f", batches of {ask['batch_size']} records"
    how = {
        "reuse": "; one batch is seen in every round",
        "fresh": "; each round has a batch of its own",
    }
    return known + how.get(str(ask.get("batches")), "")


def _shadow(run: Run) -> str:
    ask, public = run.settings, run.data.get("public")
    asked = ask.get("shadow")
    size = asked if isinstance(asked, int) and not isinstance(asked, bool) and asked > 1 else public
    records = "Public records" if size is None else f"{count(size)} public records"
    trials = ask.get("shadow_trials")
    made = "batches" if trials is None else f"{count(trials)} batches"
    return (
        f"{records} of the same kind, with label and secret (the shadow data). From them it made "
        f"{made} whose secret it knew, and learnt from their gradients."
    )
