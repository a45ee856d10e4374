"""Tests of single records: whose presence in a batch makes its secret easier to name?"""

from collections.abc import Mapping

import numpy as np

from leakgauge.inference.catalog import ATTRIBUTE, PROPERTY
from leakgauge.inference.run.figures import scored_trials
from leakgauge.inference.run.readings import RunReading
from leakgauge.inference.run.stage import GameStage
from leakgauge.inference.words import REUSE
from leakgauge.report.wording import number
from leakgauge.results.record_tests import SHARED, RecordTest
from leakgauge.results.record_trials import WorstRecord, records_of_trials, worst_record
from leakgauge.results.scores import hits
from leakgauge.results.statistics import Ints

OTHERS = "records with another secret, and records whose batches are named less surely"


def record_tests(
    stage: GameStage, leading: Mapping[str, tuple[str, RunReading]], *, alone: bool
) -> list[RecordTest]:
    """Return the test of the records in the trials, by the headline that knows most.

    Empty for games without batches of one secret, and for batches that each round draws anew: the
    trials of the first round do not hold those of the others.

    Args:
        stage: game and trials.
        leading: adversary and reading of the headline, by knowledge of the defense.
        alone: whether the run has one seed; otherwise the attack's name has the seed.
    """
    one_secret = stage.game.name in (PROPERTY, ATTRIBUTE)
    if not one_secret or stage.spec.batches != REUSE or stage.positions is None or not leading:
        return []
    knowledge = stage.knowledge[-1] if stage.knowledge[-1] in leading else next(iter(leading))
    adversary, reading = leading[knowledge]
    scored = scored_trials(stage, reading)
    values = scored.log_posterior.shape[1]
    odds = np.stack([scored.log_odds(value) for value in range(values)], axis=1)
    score, right = odds[np.arange(len(odds)), scored.truth], hits(scored)
    rows = stage.trials.rows.cpu().numpy()
    found = records_of_trials(odds, scored.truth, right, rows, scored.block)
    if not len(found.records):
        return []
    worst = worst_record(score, right, rows, scored.block * values + scored.truth)
    return [
        RecordTest(
            ask=stage.game.name,
            adversary=adversary if alone else f"{adversary}, seed {stage.spec.seed}",
            rows=stage.positions[found.records],
            p_value=found.p_value,
            excess=found.excess,
            others=found.others,
            versus=OTHERS,
            defense=stage.defense.name,
            knowledge=knowledge,
            figure=found.figure,
            guess=found.guess,
            metric="named right",
            without="in other batches",
            unit=np.empty(0, dtype=np.int64),
            family=found.secret,
            secret=stage.secret,
            dependence=SHARED,
            assumes=_relative(stage.game.name, rows),
            worst="" if worst is None else _sentence(stage.game.name, worst, stage.positions),
        )
    ]


def _relative(ask: str, rows: Ints) -> str:
    """Return what the test compares, and in how many batches a record is."""
    of_trial = [np.unique(one) for one in rows]
    held = np.unique(np.concatenate(of_trial), return_counts=True)[1]
    return (
        f"By {ask} a record is named if its batches are named more surely than others with the "
        "same secret, and no chance explains it: a record that dominates its batches moves their "
        "answer up or down whatever its secret is. How surely all are named is the question's own "
        "figure. Half of the records "
        f"are in at most {_batches(int(np.median(held)))}, and few batches show little of a record."
    )


def _batches(count: int) -> str:
    return "1 batch" if count == 1 else f"{count} batches"


def _sentence(ask: str, worst: WorstRecord, positions: Ints) -> str:
    """Return the worst record's figure in the half of the trials that did not choose it."""
    interval = f"95 % interval {number(worst.low)} to {number(worst.high)}"
    return (
        f"Row {positions[worst.record]} is the worst of {ask} in one half of the trials. In the "
        f"other half, the secret is named right in {number(worst.figure)} of its "
        f"{_batches(worst.trials)} ({interval}), and in {number(worst.guess)} of the others."
    )
