"""What each game asks, in words."""

from collections.abc import Sequence

from leakgauge.inference.report.cells import Cell
from leakgauge.report.wording import plain
from leakgauge.results.measurements import Run

PURE = ("property", "attribute")
PROPORTION, USER = "proportion", "user"


def values(run: Run, game: str) -> list[str]:
    """The names of the secret's values in a game; empty where the run does not say."""
    named = run.data.get("games", {}).get(game, {}).get("values")
    if named is None and game not in (PROPORTION, USER):
        named = run.data.get("secret_values")
    return [str(name) for name in named or ()]


def thing(game: str, secret: str) -> str:
    """What an adversary can tell or not.

    >>> thing("property", "sex"), thing("proportion", "sex")
    ('`sex`', 'the share of `sex` in a batch')
    """
    if game == PROPORTION:
        return f"the share of `{secret}` in a batch"
    if game == USER:
        return f"the person (`{secret}`) whose records a batch holds"
    return f"`{secret}`"


def cases(game: str, case: str, *, several: bool) -> tuple[str, str]:
    """Two cases to tell apart, and the kind of thing over which a mean is taken ('': none)."""
    if game == USER:
        return f"one {case} of a given candidate and one of another candidate", "candidate"
    if not several:
        return f"one {case} of each kind", ""
    if game == PROPORTION:
        return f"one {case} with the share in a given range and one in another range", "range"
    return f"one {case} with a given value and one with another value", "value"


def rules(run: Run, tests: Sequence[Cell]) -> list[str]:
    """What the games of the run are."""
    secrets = {test.game: next(iter(test.figures.values())).secret for test in tests}
    pure = [game for game in PURE if game in secrets]
    only = len(secrets) == len(pure)
    said = []
    if pure:
        where = "each trial" if only else f"each trial of {' and '.join(pure)} inference"
        said.append(
            f"In {where} all records of a batch have the same value of `{secrets[pure[0]]}`."
        )
    if run.settings.get("task") is None:  # with a task of the user's own nobody knows its inputs
        for game in pure:
            shown = {
                "property": "the model is not shown `{}`",
                "attribute": "`{}` is one of the model's inputs",
            }
            said.append(f"{game.capitalize()} inference: {shown[game].format(secrets[game])}.")
    if PROPORTION in secrets:
        said.append(_proportion(values(run, PROPORTION), secrets[PROPORTION]))
    if USER in secrets:
        said.append(_user(len(values(run, USER)), secrets[USER]))
    return said


def _proportion(names: Sequence[str], secret: str) -> str:
    ranges = f"{len(names)} ranges ({plain(names)})" if names else "several ranges"
    return (
        f"Proportion inference: in which of {ranges} the share of a batch's records with the "
        f"property `{secret}` lies."
    )


def _user(candidates: int, secret: str) -> str:
    among = f"{candidates} candidates" if candidates else "some candidates"
    return (
        f"User inference: whose records (`{secret}`) a batch holds, among {among}, one of whom it "
        "is; the candidates are others in each trial."
    )
