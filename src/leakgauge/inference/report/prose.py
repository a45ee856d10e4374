"""The paragraphs that follow from a run's settings."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from leakgauge.inference.report.asking import USER
from leakgauge.inference.report.cells import Cell
from leakgauge.inference.report.verdict import LEAKS, Verdict
from leakgauge.report.wording import count, percent, plain
from leakgauge.results.measurements import Measurement, Run

MATCHING, ENCODER = "matching", "encoder"
"""Adversaries that are told more than the others."""

PARTS = ("records", "columns", "private", "public", "test", "persons")
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


def unplayed(
    run: Run, tests: Sequence[Cell], *, option: str = "ask", field: str = "game"
) -> list[str]:
    """What was asked for and is not there: it could not be played to its end.

    Args:
        run: the settings it was asked for by.
        tests: what is there.
        option: the setting that lists what was asked for, with each defense.
        field: of a test, where it stands.
    """
    there = {(getattr(test, field), test.defense) for test in tests}
    asked = product(run.settings.get(option, ()), ("none", *run.settings.get("defense", ())))
    names = [
        f"'{name}'{'' if defense == 'none' else f' under {defense}'}"
        for name, defense in asked
        if (name, defense) not in there
    ]
    return [f"Asked for, and not played to the end: {', '.join(names)}."] if names else []


def knew(run: Run, tests: Sequence[Cell]) -> list[str]:
    """What every adversary of the run had."""
    ask = run.settings
    told = [
        f"The gradients it is to judge, as a server sees them that collects them{_batches(ask)}.",
        f"The model: its architecture and its parameters at {_each_round(ask)}.",
        f"The learning algorithm: the loss{_learning(ask)}.",
        _shadow(run),
        f"The prior: how often each value of the secret is met{_prior(ask)}.",
    ]
    told += _auxiliary(run, tests)
    if any(test.defense != "none" for test in tests):
        told.append(
            "The defense, only where its knowledge is called adaptive: such an adversary learnt "
            "from defended gradients. A static one learnt from undefended gradients and then "
            "judged defended ones."
        )
    return told


def knew_not(run: Run) -> list[str]:
    """What was kept from it."""
    private, group = run.data.get("private"), run.settings.get("group")
    size = f" {count(private)}" if private is not None else ""
    apart = "Public (shadow) and private records are disjoint"
    if group:
        apart += f", and no person (`{group}`) has records on two sides"
    elif run.data.get("persons") is not None:
        apart += ", and no person has records on two sides"
    kept = f"The{size} private records, and which of them are in a batch"
    if _told_more(run, ()):
        kept += ", but for what is said of single adversaries"
    return [f"{kept}. {apart}."]


def interval_text(run: Run, tests: Sequence[Cell]) -> list[str]:
    """How the intervals are made, and what they do not cover."""
    records = [record for test in tests for record in test.figures.values()]
    shown = sorted({record.estimate.confidence for record in records})
    text = [
        f"The private records are cut into {_blocks(run)}. Each trial draws its batch within one "
        f"block. The {' and '.join(percent(level) for level in shown)} intervals come from "
        "resampling whole blocks (a cluster bootstrap), so trials that share records do not make "
        "an interval too narrow.",
        "An interval covers the choice of the private records and of the trials. It does not "
        "cover another model, another training run or a better adversary.",
    ]
    if len(tests) > 1:
        text.append(
            "Each interval stands for itself. Of many tests without any leakage a few still lie "
            "wholly above chance by luck."
        )
    return text


def utility_text(record: Measurement) -> str:
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
    return f"{figures} So it is not shown that the model has learnt more than that."


def parts(data: Mapping[str, Any]) -> dict[str, Any]:
    """The sizes of the data and its parts."""
    return {key: data[key] for key in PARTS if data.get(key) is not None}


def other_facts(data: Mapping[str, Any]) -> dict[str, Any]:
    """What else is known of the data, without what has a place of its own."""
    placed = {*PARTS, "secret_values", "fingerprint", "games"}
    facts: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping) and key not in placed:
            facts |= {f"{key}, {name}": item for name, item in value.items()}
        elif key not in placed:
            facts[key] = value
    return facts


def _told_more(run: Run, tests: Sequence[Cell]) -> list[str]:
    """The adversaries that hold a part of the private data, by name."""
    asked = run.settings.get("adversary") or ()
    known = {asked} if isinstance(asked, str) else set(asked)
    known |= {test.adversary for test in tests}
    games = {test.game for test in tests} | set(run.settings.get("ask") or ())
    return [
        *([MATCHING] if MATCHING in known else []),
        *([ENCODER] if ENCODER in known or USER in games else []),
    ]


def _auxiliary(run: Run, tests: Sequence[Cell]) -> list[str]:
    more, said = _told_more(run, tests), []
    if MATCHING in more:
        said.append(
            "Only the matching adversary, in attribute inference: all other features and the "
            "labels of the private batch (the auxiliary knowledge phi(x)). It fills in each value "
            "of the secret, makes the gradients itself and compares."
        )
    if ENCODER in more:
        said.append(
            "In user inference: a batch of each candidate's other records. None of them is in the "
            "batch that is judged, and the candidates are no shadow persons."
        )
    return said


def _blocks(run: Run) -> str:
    blocks = run.data.get("blocks")
    if isinstance(blocks, Mapping):  # by game
        several = len(set(blocks.values())) > 1
        by_game = ", ".join(f"{game}: {count(n)}" for game, n in blocks.items())
        blocks = None if several or not blocks else next(iter(blocks.values()))
        if several:
            return f"disjoint blocks ({by_game})"
    return "disjoint blocks" if blocks is None else f"{count(blocks)} disjoint blocks"


def _batches(ask: Mapping[str, Any]) -> str:
    size = ask.get("batch_size")
    batch = "" if size is None else f", each of a batch of {size} records"
    how = {
        "reuse": ", which is the same in every round",
        "fresh": ", a new one with the same secret in each round",
    }
    return (
        batch + how.get(str(ask.get("batches")), "") if batch and ask.get("rounds") != 1 else batch
    )


def _prior(ask: Mapping[str, Any]) -> str:
    prior = ask.get("prior")
    known = {"uniform": ": equally often", "empirical": ": as among the private records"}
    return "" if prior is None else known.get(str(prior), f" ({plain(prior)})")


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
        known += f", steps on batches of {ask['batch_size']} records"
    return known


def _shadow(run: Run) -> str:
    size = run.data.get("public", run.settings.get("shadow"))
    records = "Public records" if size is None else f"{count(size)} public records"
    return (
        f"{records} of the same kind, with label and secret (the shadow data), encoded as the "
        "private ones are. In each round it made batches of them whose secret it knew, and learnt "
        "from their gradients."
    )
