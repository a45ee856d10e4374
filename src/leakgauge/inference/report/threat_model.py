"""The knowledge of the adversaries of a run."""

from collections.abc import Mapping, Sequence
from typing import Any

from leakgauge.inference.catalog import USER, adversaries_for
from leakgauge.inference.report.games import of_games
from leakgauge.inference.words import EMPIRICAL, FRESH, REUSE, UNIFORM
from leakgauge.report.grouping import Test
from leakgauge.report.wording import count, plain
from leakgauge.results.measurements import Run
from leakgauge.runs.spec import NONE
from leakgauge.training.catalog import SGD, own_rate

MATCHING = "matching"
"""An adversary with more knowledge than the others, as in user inference."""


def known(run: Run, tests: Sequence[Test]) -> list[str]:
    """Return the knowledge of every adversary of the run."""
    settings = run.settings
    lines = [
        f"The attacked gradients, as received by a server that collects them{_batches(settings)}.",
        f"The model: its architecture and its parameters at {_each_round(settings)}.",
        f"The learning algorithm: the loss{_learning(settings)}.",
        _shadow(run),
        f"The prior: how often each value of the secret occurs{_prior(settings)}.",
    ]
    lines += _auxiliary(run, tests)
    if any(test.defense != NONE for test in tests):
        lines.append(
            "The defense, if the adversary is adaptive: it learned from defended gradients. A "
            "static one learned from undefended gradients and then attacked defended ones."
        )
    return lines


def unknown(run: Run) -> list[str]:
    """Return what is unknown to every adversary of the run."""
    private, group = run.data.get("private"), run.settings.get("group")
    size = f" {count(private)}" if private is not None else ""
    apart = "Public (shadow) and private records are disjoint"
    if run.settings.get("by_user") is False:
        apart += ", but a user may have records on both sides: records were split"
    elif group:
        apart += f", and no user (`{group}`) has records on two sides"
    elif run.data.get("users") is not None:
        apart += ", and no user has records on two sides"
    secret = f"The{size} private records, and which of them are in a batch"
    if _informed(run, ()):
        secret += ", except what single adversaries know"
    return [f"{secret}. {apart}."]


def _informed(run: Run, tests: Sequence[Test]) -> list[str]:
    """Return ``MATCHING`` and ``USER`` if their adversaries hold a part of the private data."""
    named = {str(name).partition(":")[0] for name in run.settings.get("adversary") or ()}
    named |= {test.adversary.partition(":")[0] for test in tests}
    games = {test.game for test in tests} | set(run.settings.get("ask") or ())
    return [
        *([MATCHING] if MATCHING in named else []),
        *([USER] if USER in games or named.intersection(adversaries_for(USER)) else []),
    ]


def _auxiliary(run: Run, tests: Sequence[Test]) -> list[str]:
    informed, lines = _informed(run, tests), []
    if MATCHING in informed:
        lines.append(
            "Only the matching adversary, in attribute inference: all other features and the "
            "labels of the private batch (the auxiliary knowledge phi(x)). It fills in each value "
            "of the secret, makes the gradients itself and compares."
        )
    if USER in informed:
        lines.append(
            "In user inference: a batch of each candidate's other records. None of them is in the "
            "attacked batch, and the candidates are not shadow users."
        )
    return lines


def _batches(settings: Mapping[str, Any]) -> str:
    size = settings.get("batch_size")
    if size is None:
        return ""
    batch = f", each of a batch of {of_games(size)} records"
    how = {
        REUSE: ", which is the same in every round",
        FRESH: ", a new one with the same secret in each round",
    }
    if settings.get("rounds") == 1:
        return batch
    return batch + how.get(str(settings.get("batches")), "")


def _prior(settings: Mapping[str, Any]) -> str:
    prior = settings.get("prior")
    words = {UNIFORM: ": equally often", EMPIRICAL: ": as among the private records"}
    return "" if prior is None else words.get(str(prior), f" ({plain(prior)})")


def _each_round(settings: Mapping[str, Any]) -> str:
    rounds = settings.get("rounds")
    if rounds == 1:
        return "the one round"
    return "each round" if rounds is None else f"each of the {rounds} rounds"


def _learning(settings: Mapping[str, Any]) -> str:
    words = ""
    optimizer = settings.get("optimizer", SGD)
    if optimizer != SGD:
        words += f", the optimizer `{optimizer}`"
    if settings.get("lr") is not None and own_rate(optimizer) is None:
        words += f", the learning rate {plain(settings['lr'])}"
    if settings.get("batch_size") is not None:
        words += f", steps on batches of {of_games(settings['batch_size'])} records"
    return words


def _shadow(run: Run) -> str:
    size = run.data.get("public", run.settings.get("shadow"))
    records = "Public records" if size is None else f"{count(size)} public records"
    return (
        f"{records} of the same kind, with label and secret (the shadow data), encoded as the "
        "private ones are. In each round it computes gradients of batches with known secrets, "
        "and learns from them."
    )
