"""What a report says of methods that certify the records that they rebuild."""

from leakgauge.inversion.metrics.table import CERTIFIED
from leakgauge.report.grouping import UNDEFENDED, Test


def is_open(test: Test) -> bool:
    """Return whether a method that can certify plain gradients left some without a certificate."""
    certified = test.at(CERTIFIED)
    return certified is not None and certified.estimate.value < 1 and test.defense == UNDEFENDED


def is_certified(test: Test) -> bool:
    """Return whether all updates of an attempt are certified."""
    certified = test.at(CERTIFIED)
    return certified is not None and certified.estimate.value == 1


def certificate_sentence(test: Test) -> str:
    """Return for how many updates the rebuilt records are certified; empty for other methods."""
    certified = test.at(CERTIFIED)
    if certified is None:
        return ""
    if certified.estimate.value == 0:
        more = " Nothing is certified, so more records may leak than were found."
        return more if is_open(test) else ""
    n, sure = certified.estimate.n, round(certified.estimate.value * certified.estimate.n)
    of = "The update is certified" if n == 1 else f"{sure} of {n} updates are certified"
    return f" {of}: rebuilt records and labels have the gradient that was sent, to rounding."
