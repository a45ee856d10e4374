"""The least information that a measured success implies, by Fano's inequality."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from leakgauge.inference.report.games import values
from leakgauge.inference.report.promises import guarantee
from leakgauge.privacy.bounds import information_from_success
from leakgauge.report.grouping import Test
from leakgauge.report.levels import LEAKS, level_of
from leakgauge.report.wording import short
from leakgauge.results.measurements import Measurement, Run

NO_CERTIFICATE = (
    "This is a lower bound on the information, and no certificate: another adversary may learn "
    "more from the same gradients."
)


@dataclass(frozen=True)
class Implied:
    """The least information, in nats, that a test's success rate implies.

    Attributes:
        test: the test.
        success: its success rate.
        value: implied by the rate itself; low and high, by the ends of its interval.
        certificate: the most that any adversary can learn, in nats, where that is known.
    """

    test: Test
    success: Measurement
    value: float
    low: float
    high: float
    certificate: float | None = None

    @property
    def least(self) -> str:
        """The information that the lower end of the interval implies, in words."""
        if self.low == 0:
            return "nothing, as it is not surely above guessing"
        return f"at least {short(self.low)} nats ({short(bits(self.low))} bits)"

    @property
    def text(self) -> str:
        """The information in plain words."""
        return f"The measured success implies {self.least}. {NO_CERTIFICATE}"


def implied(run: Run, test: Test) -> Implied | None:
    """Return what the accumulated success of a test implies; None without a success rate or a leak.

    Where nothing was accumulated, the last round stands for it.
    """
    one = test.whole("success")
    if one is None or not 0 < one.chance < 1 or not _leaks(test):
        return None
    # Guessing alone matters here; the number of values only has to fit it.
    classes = max(2, len(values(run, test.game)), math.ceil(1 / one.chance - 1e-9))
    low, value, high = (
        information_from_success(rate, classes, majority=one.chance)
        for rate in (one.estimate.low, one.estimate.value, one.estimate.high)
    )
    channel = guarantee(run, test.game, test.defense).get("channel")
    certificate = None if channel is None else channel["information_nats"]
    return Implied(test, one, value, low, high, certificate)


def _leaks(test: Test) -> bool:
    """Whether the verdict is a leak; else a figure above 0 would contradict it."""
    auroc = test.whole("auroc")
    return auroc is None or level_of(auroc.estimate, auroc.chance) in LEAKS


def all_implied(run: Run, tests: Sequence[Test]) -> list[Implied]:
    """Return what each test with a success rate implies."""
    each = (implied(run, test) for test in tests)
    return [one for one in each if one is not None]


def bits(nats: float) -> float:
    """Return information in nats as bits.

    >>> bits(math.log(2))
    1.0
    """
    return nats / math.log(2)
