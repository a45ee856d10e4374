"""Descriptions of the games."""

from collections.abc import Iterable, Mapping, Sequence

from leakgauge.inference.catalog import ATTRIBUTE, PROPERTY, PROPORTION, USER, adversaries_for
from leakgauge.report.grouping import Test
from leakgauge.report.wording import plain
from leakgauge.results.measurements import Run

PURE = (PROPERTY, ATTRIBUTE)
"""Games in which all records of a batch have the same value of the secret."""


def values(run: Run, game: str) -> list[str]:
    """Return the names of the secret's values in a game; empty if the run has none."""
    named = run.data.get("games", {}).get(game, {}).get("values")
    if named is None and game not in (PROPORTION, USER):
        named = run.data.get("secret_values")
    return [str(name) for name in named or ()]


def of_games(number: int | Mapping[str, int]) -> str:
    """Return a number of all games, or of each game, as text.

    >>> of_games(16), of_games({"property": 16, "user": 8})
    ('16', '16 (property) or 8 (user)')
    """
    if not isinstance(number, Mapping):
        return str(number)
    return " or ".join(f"{one} ({game})" for game, one in number.items())


def inferred(game: str, secret: str) -> str:
    """Return the target of an adversary in a game.

    >>> inferred("property", "sex"), inferred("proportion", "sex")
    ('`sex`', 'the share of `sex` in a batch')
    """
    if game == PROPORTION:
        return f"the share of `{secret}` in a batch"
    if game == USER:
        return f"the user (`{secret}`) whose records a batch holds"
    return f"`{secret}`"


def cases(game: str, case: str, *, several: bool) -> tuple[str, str]:
    """Return two cases to distinguish, and the noun for the terms of a mean, if any."""
    if game == USER:
        return f"one {case} of a given candidate and one of another candidate", "candidate"
    if not several:
        return f"one {case} of each kind", ""
    if game == PROPORTION:
        return f"one {case} with the share in a given range and one in another range", "range"
    return f"one {case} with a given value and one with another value", "value"


def rules(run: Run, tests: Sequence[Test]) -> list[str]:
    """Return the rules of the run's games, one sentence each."""
    secrets = {test.game: next(iter(test.figures.values())).secret for test in tests}
    pure = [game for game in PURE if game in secrets]
    only = len(secrets) == len(pure)
    sentences = []
    if pure:
        where = "each trial" if only else f"each trial of {' and '.join(pure)} inference"
        sentences.append(
            f"In {where} all records of a batch have the same value of `{secrets[pure[0]]}`."
        )
    if run.settings.get("task") is None:  # the inputs of a user's own task are not known
        inputs = {
            PROPERTY: "the model does not see `{}`",
            ATTRIBUTE: "`{}` is one of the model's inputs",
        }
        sentences += [
            f"{game.capitalize()} inference: {inputs[game].format(secrets[game])}." for game in pure
        ]
    if PROPORTION in secrets:
        sentences.append(_proportion(values(run, PROPORTION), secrets[PROPORTION]))
    if USER in secrets:
        sentences.append(_user(len(values(run, USER)), secrets[USER]))
        sentences += _ours(test.adversary for test in tests if test.game == USER)
    return sentences


def _proportion(names: Sequence[str], secret: str) -> str:
    ranges = f"{len(names)} ranges ({plain(names)})" if names else "several ranges"
    return (
        f"Proportion inference: the adversary names the one of {ranges} that holds the share of a "
        f"batch's records with the property `{secret}`."
    )


def _user(candidates: int, secret: str) -> str:
    among = f"{candidates} candidates" if candidates else "several candidates"
    return (
        f"User inference: the adversary names the user (`{secret}`) whose records a batch holds. "
        f"It chooses among {among}; each trial has other candidates."
    )


def _ours(adversaries: Iterable[str]) -> list[str]:
    """Return a sentence about the adversaries of user inference that are not from the paper."""
    papers, *others = adversaries_for(USER)
    used = {name.partition(":")[0] for name in adversaries}
    ours = [f"`{name}`" for name in others if name in used]
    if not ours:
        return []
    are = "is" if len(ours) == 1 else "are"
    return [f"{' and '.join(ours)} {are} not from Li et al.; `--adversary {papers}` is."]
