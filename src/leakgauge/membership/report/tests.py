"""The tests of a run for the report: attacks, headlines, classes."""

from collections.abc import Sequence
from pathlib import Path

from leakgauge.core.knowledge import ADAPTIVE
from leakgauge.membership.metrics import MEMBERS_NORM, OTHERS_NORM
from leakgauge.membership.run.at_risk import AtRisk, read_at_risk
from leakgauge.report.grouping import UNDEFENDED, Test, group_tests
from leakgauge.results.measurements import HEADLINE, Measurement
from leakgauge.results.metrics import UTILITY
from leakgauge.results.scores import AUROC, TRAIN_ACCURACY

OF_CLASS = f"{AUROC}: "
"""Prefix of the metrics of single classes."""


def attack_tests(measurements: Sequence[Measurement]) -> list[Test]:
    """Return the tests of the attacks, without the model's own figures.

    Raises:
        InputError: two measurements are the same figure of the same test.
    """
    return group_tests(measurements, without=(*UTILITY, TRAIN_ACCURACY, MEMBERS_NORM, OTHERS_NORM))


def leading(tests: Sequence[Test]) -> list[Test]:
    """Return the leading test for each defense and knowledge."""
    return [test for test in tests if test.has(HEADLINE)]


def setting_of(test: Test) -> str:
    """Return the defense of a test in a few words.

    >>> setting_of(Test("membership", "sign", "adaptive", "loss", {}))
    'defense sign, adaptive knowledge'
    """
    if test.defense == UNDEFENDED:
        return "no defense"
    return f"defense {test.defense}, {test.knowledge} knowledge"


def exposed(test: Test, folder: Path) -> list[AtRisk]:
    """Return the records most at risk under a defense, by the attack that knows it."""
    knows = test.defense == UNDEFENDED or test.knowledge == ADAPTIVE
    return read_at_risk(folder).get(test.defense, []) if knows else []


def classes(test: Test) -> list[tuple[str, Measurement]]:
    """Return the AUROC of each class of a test, the highest first."""
    found = [
        (metric.removeprefix(OF_CLASS), one)
        for (metric, when), one in test.figures.items()
        if metric.startswith(OF_CLASS) and when != HEADLINE
    ]
    return sorted(found, key=lambda pair: -pair[1].estimate.value)


def trained(measurements: Sequence[Measurement], defense: str) -> Measurement | None:
    """Return the accuracy of a model on the records that it was trained on."""
    return next(
        (one for one in measurements if (one.metric, one.defense) == (TRAIN_ACCURACY, defense)),
        None,
    )


def norms(measurements: Sequence[Measurement], defense: str) -> dict[str, list[Measurement]]:
    """Return the gradient norms of members and of others by epoch; empty if none were kept."""
    found: dict[str, list[Measurement]] = {}
    for one in measurements:
        if one.metric in (MEMBERS_NORM, OTHERS_NORM) and one.defense == defense:
            found.setdefault(one.metric, []).append(one)
    return found
