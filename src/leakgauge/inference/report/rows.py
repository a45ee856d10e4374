"""The rows of inference in the summary of a report, one per word of ``--ask``."""

from collections.abc import Sequence
from dataclasses import replace

from leakgauge.inference.metrics import METRICS
from leakgauge.inference.report.titles import baselines_of, most_at_risk_of, secret_of
from leakgauge.inference.report.verdict import InferenceVerdict
from leakgauge.report.section import LEVELS, Row
from leakgauge.results.measurements import Measurement
from leakgauge.results.scores import AUROC, FEATURES_ALONE, LABELS_ALONE
from leakgauge.runs.question import Answer


def rows(answer: Answer, leading: Sequence[InferenceVerdict]) -> list[Row]:
    """Return one row for each game of ``--ask``; the worst test of a game decides.

    Args:
        answer: answer of the run.
        leading: verdicts of the leading tests.
    """
    worst = worst_by_ask(leading)
    games = answer.run.settings.get("ask") or list(worst)
    return [_row(worst[game]) if game in worst else _missing(game, answer) for game in games]


def rows_of_tests(verdicts: Sequence[InferenceVerdict]) -> list[Row]:
    """Return one row for each test, in the order of their verdicts."""
    return [replace(_row(one), test=one.test.who) for one in verdicts]


def rows_of_baselines(measurements: Sequence[Measurement]) -> list[Row]:
    """Return one row for each baseline of each game."""
    names = {LABELS_ALONE: "labels alone", FEATURES_ALONE: "feature means alone"}
    return [
        Row(
            ask=game,
            verdict="Baseline",
            level="unknown",
            text="",
            metric=METRICS[AUROC].label,
            estimate=one.estimate,
            chance=one.chance,
            test=names[name],
            secret=one.secret,
        )
        for game, found in baselines_of(measurements).items()
        for name, one in found.items()
    ]


def rows_of_users(
    measurements: Sequence[Measurement], leading: Sequence[InferenceVerdict]
) -> list[Row]:
    """Return a row for the user most at risk in the worst test of each game with users."""
    found = (most_at_risk_of(measurements, one.test) for one in worst_by_ask(leading).values())
    return [
        Row(
            ask=one.game,
            verdict="Most at risk",
            level="unknown",
            text="",
            metric="Success",
            estimate=one.estimate,
            chance=one.chance,
            test=f"{one.adversary}, one user",
            secret=one.secret,
        )
        for one in found
        if one is not None
    ]


def worst_by_ask(verdicts: Sequence[InferenceVerdict]) -> dict[str, InferenceVerdict]:
    """Return the verdict of the worst test of each game."""
    worst: dict[str, InferenceVerdict] = {}
    for one in verdicts:
        game = one.test.game
        if game not in worst or _urgency(one) > _urgency(worst[game]):
            worst[game] = one
    return worst


def _urgency(one: InferenceVerdict) -> tuple[int, float]:
    return LEVELS[one.level], one.auroc.value


def _row(one: InferenceVerdict) -> Row:
    return Row(
        ask=one.test.game,
        verdict=one.headline,
        level=one.level,
        text=one.text,
        metric=METRICS[AUROC].label,
        estimate=one.auroc,
        chance=one.chance,
        strength=one.strength,
        secret=secret_of(one.test),
    )


def _missing(ask: str, answer: Answer) -> Row:
    reasons = [text for text in answer.missing if text.startswith(ask)]
    text = " ".join(reasons) or "None of its tests has an AUROC."
    return Row(ask=ask, verdict="Not measured", level="unknown", text=text)
