"""What a report says of methods that certify the records that they rebuild."""

from leakgauge.inversion.metrics.table import CERTIFIED, LAYER_CERTIFIED, LAYER_INPUTS
from leakgauge.inversion.words import LAYER
from leakgauge.report.grouping import UNDEFENDED, Test
from leakgauge.report.wording import count


def is_open(test: Test) -> bool:
    """Return whether a method that can certify plain gradients left some without a certificate."""
    certified = test.at(CERTIFIED) or test.at(LAYER_CERTIFIED)
    return certified is not None and certified.estimate.value < 1 and test.defense == UNDEFENDED


def is_certified(test: Test) -> bool:
    """Return whether the records, or inputs to a layer, of all updates are certified."""
    certified = test.at(CERTIFIED) or test.at(LAYER_CERTIFIED)
    return certified is not None and certified.estimate.value == 1


def certificate_sentence(test: Test) -> str:
    """Return for how many updates the rebuilt records are certified; empty for other methods."""
    certified = test.at(CERTIFIED)
    if certified is None:
        return _of_layer(test)
    if certified.estimate.value == 0:
        more = " Nothing is certified, so more records may leak than were found."
        return more if is_open(test) else ""
    n, sure = certified.estimate.n, round(certified.estimate.value * certified.estimate.n)
    of = "The update is certified" if n == 1 else f"{sure} of {n} updates are certified"
    return f" {of}: rebuilt records and labels have the gradient that was sent, to rounding."


def _of_layer(test: Test) -> str:
    """Return how many inputs to a layer are exact and certified; empty for other methods."""
    certified, exact = test.at(LAYER_CERTIFIED), test.at(LAYER_INPUTS)
    if certified is None:
        return ""
    said = f" The inputs to layer {certified.details[LAYER]!r} were sought"
    if exact is not None:
        right = round(exact.estimate.value * exact.estimate.n)
        said += f", and are exact for {right} of {count(exact.estimate.n)} records"
    sure, of = round(certified.estimate.value * certified.estimate.n), certified.estimate.n
    if not sure:
        return f"{said}. Nothing is certified, so more may leak than was found."
    return (
        f"{said}. {sure} of {count(of)} updates are certified: with the found labels, the gradient "
        "of the inputs from this layer on is the one that was sent, to rounding. Whoever holds a "
        "record can tell by them whether it was used."
    )
