"""The rows of inference in the summary of a report, one per word of ``--ask``."""

from collections.abc import Sequence
from dataclasses import replace

from leakgauge.inference.metrics import BASELINES, METRICS
from leakgauge.inference.report.titles import baselines_of, beyond_of, most_at_risk_of, secret_of
from leakgauge.inference.report.verdict import InferenceVerdict
from leakgauge.report.section import LEVELS, Row
from leakgauge.results.measurements import Measurement
from leakgauge.results.scores import AUROC
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
    return [
        _figure_row("Baseline", METRICS[AUROC].label, one, BASELINES[name])
        for found in baselines_of(measurements).values()
        for name, one in found.items()
    ]


def rows_of_users(
    measurements: Sequence[Measurement], leading: Sequence[InferenceVerdict]
) -> list[Row]:
    """Return a row for the user most at risk in the worst test of each game with users."""
    found = (most_at_risk_of(measurements, one.test) for one in worst_by_ask(leading).values())
    return [
        _figure_row("Most at risk", "Success", one, f"{one.adversary}, one user")
        for one in found
        if one is not None
    ]


def _figure_row(verdict: str, metric: str, one: Measurement, test: str) -> Row:
    """Return the row of a figure without a verdict."""
    figure = metric, one.estimate, one.chance
    return Row(one.game, verdict, "unknown", "", *figure, test=test, secret=one.secret)


def worst_by_ask(verdicts: Sequence[InferenceVerdict]) -> dict[str, InferenceVerdict]:
    """Return the verdict of the worst test of each game."""
    worst: dict[str, InferenceVerdict] = {}
    for one in verdicts:
        game = one.test.game
        if game not in worst or urgency(one) > urgency(worst[game]):
            worst[game] = one
    return worst


def urgency(one: InferenceVerdict) -> tuple[int, float]:
    """Return the rank of a verdict, by level and AUROC; the most urgent one has the highest."""
    return LEVELS[one.level], one.auroc.value


def _row(one: InferenceVerdict) -> Row:
    beyond = None if one.one_value else beyond_of(one.test)
    return Row(
        ask=one.test.game,
        verdict=one.headline,
        level=one.level,
        text=one.text,
        metric=METRICS[one.metric].label,
        estimate=one.figure,
        chance=one.chance,
        strength=one.strength,
        secret=secret_of(one.test),
        beyond=None if beyond is None else beyond.difference,
    )


def _missing(ask: str, answer: Answer) -> Row:
    reasons = [text for text in answer.missing if text.startswith(ask)]
    text = " ".join(reasons) or "None of its tests has an AUROC."
    return Row(ask=ask, verdict="Not measured", level="unknown", text=text)
