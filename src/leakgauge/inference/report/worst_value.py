"""The value of a secret that leaks most: a mean over the values can hide it."""

from dataclasses import dataclass

from leakgauge.report.grouping import Test
from leakgauge.results.measurements import Estimate
from leakgauge.results.worst import among


@dataclass(frozen=True)
class WorstValue:
    """The value with the highest AUROC against all others.

    Attributes:
        name: name of the value.
        alone: its AUROC, with the interval of this value alone.
        count: number of values, of which it is the highest.
    """

    name: str
    alone: Estimate
    count: int

    @property
    def among_all(self) -> Estimate:
        """Its AUROC with ends that hold for all values together."""
        return among(self.alone, self.count)


def worst_value(test: Test) -> WorstValue | None:
    """Return the value that leaks most; None where the test has no figures of single values."""
    if not test.values:
        return None
    name = max(test.values, key=lambda each: test.values[each].estimate.value)
    return WorstValue(name, test.values[name].estimate, len(test.values))


def leaking_value(test: Test) -> WorstValue | None:
    """Return the value that leaks most, if its AUROC is above guessing among all values."""
    worst = worst_value(test)
    return worst if worst is not None and worst.among_all.low > 0.5 else None
