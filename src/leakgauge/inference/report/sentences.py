"""Sentences about the tests of a run: summary, intervals, leaks that labels explain."""

from collections.abc import Mapping, Sequence

from leakgauge.inference.catalog import USER
from leakgauge.inference.report.verdict import InferenceVerdict
from leakgauge.inference.run.over_seeds import BY_SEED
from leakgauge.inference.words import IID
from leakgauge.report.grouping import Test
from leakgauge.report.levels import LEAKS
from leakgauge.report.wording import count, interval, number, percent
from leakgauge.results.measurements import Measurement, Run
from leakgauge.results.scores import LABELS_ALONE


def summary(verdicts: Sequence[InferenceVerdict]) -> str:
    """Return the number of tests with leakage as a sentence; empty for a single test."""
    if len(verdicts) < 2:
        return ""
    leaks = sum(one.level in LEAKS for one in verdicts)
    invalid = sum(one.level == "below" for one in verdicts)
    open_ = sum(one.level == "inconclusive" for one in verdicts)
    of = len(verdicts)
    parts = [f"{leaks} of {of} tests show leakage" if leaks else "No test shows leakage"]
    none = of - leaks - invalid - open_
    if leaks and none:
        parts.append(f"{none} {'shows' if none == 1 else 'show'} none")
    if open_:
        parts.append(f"{open_} {'is' if open_ == 1 else 'are'} inconclusive")
    if invalid:
        parts.append(f"{invalid} {'is' if invalid == 1 else 'are'} not valid")
    return "; ".join(parts) + "."


def about_intervals(run: Run, tests: Sequence[Test]) -> list[str]:
    """Return sentences about the intervals and their limits."""
    figures = [one for test in tests for one in test.figures.values()]
    levels = sorted({one.estimate.confidence for one in figures})
    intervals = f"{' and '.join(percent(level) for level in levels)} intervals"
    lines = [*_of_trials(run, intervals), *_covered(run)]
    if len(tests) > 1:
        lines.append(
            "Each interval is valid by itself. Among many tests without leakage a few are above "
            "chance by luck."
        )
    return lines


def _of_trials(run: Run, intervals: str) -> list[str]:
    """Return sentences about the intervals of trials that share records."""
    blocks = run.data.get("blocks")
    of_game = blocks if isinstance(blocks, Mapping) else {"": blocks}
    lines = []
    apart = {game: number for game, number in of_game.items() if number != 1}
    if apart:
        lines.append(
            f"The private records are cut into {_blocks(apart)}. Each trial draws its batch within "
            f"one block. The {intervals} come from resampling whole blocks (a cluster bootstrap), "
            "so trials that share records do not make an interval too narrow."
        )
    from_all = [game for game, number in of_game.items() if number == 1 and game != USER]
    if from_all:
        lines.append(
            "Each record of a batch is an independent draw from all private records. The "
            f"{intervals} leave out one record at a time, or one user where the data name users "
            "(a jackknife), so trials that share records do not make an interval too narrow."
        )
    if of_game.get(USER) == 1:
        chosen = run.settings.get("draw") == IID
        each = "Each" if chosen else "The private users are too few for disjoint blocks: each"
        lines.append(
            f"{each} trial of user inference draws its candidates from all "
            f"of them. Its {intervals} leave out one user at a time "
            "(a jackknife), so trials that share users do not make an interval too narrow; they "
            "tend to be too wide."
        )
    return lines


def _covered(run: Run) -> list[str]:
    seeds = run.settings.get("seeds", 1)
    if seeds == 1:
        return [
            "An interval covers the choice of the private records and of the trials. It does not "
            "cover another model, another training run (--seeds 3 does) or a better adversary."
        ]
    return [
        f"Every figure is the mean over {count(seeds)} seeds, each with its own split of the "
        "records, initial model, training and trials. Its interval is Student's t over the seeds, "
        "widened to what the trials alone give. So it covers other training runs, but not another "
        "model or a better adversary."
    ]


BETWEEN_TRAININGS = 0.07
"""AUROC by which two trainings of such networks typically differ; ``intervals.md`` has how it was
measured."""

OPEN = (0.55, 0.95)
"""AUROCs between which trainings were seen to differ that much; near 1 they agree."""


def one_training(run: Run, verdicts: Sequence[InferenceVerdict]) -> str:
    """Return what an interval of one training leaves out; empty with several seeds.

    Args:
        run: the run with its settings.
        verdicts: verdicts of the headlines.
    """
    if run.settings.get("seeds", 1) > 1 or not verdicts:
        return ""
    known = [one.test.game for one in verdicts if OPEN[0] <= one.auroc.value <= OPEN[1]]
    if not known:
        return "One training: others may differ; --seeds 5 measures it."
    games = " and ".join(dict.fromkeys(known))
    return (
        f"One training: in others the AUROC of {games} inference may differ by about "
        f"{BETWEEN_TRAININGS:g}; --seeds 5 measures it."
    )


def about_most_at_risk(one: Measurement, mean: Measurement) -> str:
    """Return a sentence that compares the user most at risk with all users.

    Args:
        one: success on the user most at risk.
        mean: success over all users.
    """
    user = "the user" if BY_SEED in one.details else f"user `{one.details['user']}`"
    return (
        f"Most at risk is {user}, among {one.details['users compared']} users: the adversary names "
        f"{percent(one.estimate.value)} of this user's batches "
        f"({percent(one.estimate.confidence)} interval {percent(one.estimate.low)} to "
        f"{percent(one.estimate.high)}), against {percent(mean.estimate.value)} on average; "
        f"guessing gives {percent(one.chance)}. One half of the trials chose the user, the other "
        "half gave the figure."
    )


AS_MUCH = 0.02
"""Maximum difference of AUROC for which the labels alone explain a leak."""


def explained_by_labels(
    verdicts: Sequence[InferenceVerdict], baselines: Mapping[str, Mapping[str, Measurement]]
) -> list[str]:
    """Return a warning for each leak that the labels of a batch explain."""
    warnings = []
    for one in verdicts:
        labels = baselines.get(one.test.game, {}).get(LABELS_ALONE)
        if labels is None or one.level not in LEAKS or labels.estimate.low <= labels.chance:
            continue
        if one.one_value:  # the labels were read on average over the values
            continue
        if one.auroc.value <= labels.estimate.value + AS_MUCH:
            warnings.append(
                f"{one.test.game} inference: the labels of a batch reveal {labels.secret!r} "
                f"without gradients with an AUROC of {number(labels.estimate.value)} "
                f"({interval(labels.estimate)}), and gradients with {number(one.auroc.value)}: the "
                "labels explain this leak; balance them over the secret, or choose another --label"
            )
    return warnings


def _blocks(of_game: Mapping[str, int | None]) -> str:
    if len(set(of_game.values())) > 1:
        by_game = ", ".join(f"{game}: {count(n or 0)}" for game, n in of_game.items())
        return f"disjoint blocks ({by_game})"
    number = next(iter(of_game.values()))
    return "disjoint blocks" if number is None else f"{count(number)} disjoint blocks"
