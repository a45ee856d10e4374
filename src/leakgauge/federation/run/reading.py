"""Reads a momentum off an update: the one under which rebuilt records reproduce the update."""

from collections.abc import Callable

from leakgauge.inversion.run.received import Received
from leakgauge.inversion.words import MATCHED
from leakgauge.training.catalog import SGD, with_settings
from leakgauge.training.recognition import Understood

MOMENTUM = 0.9
"""The momentum that is tried: the one of nearly all configurations."""

TRIED = (
    ("momentum", {"momentum": MOMENTUM}),
    ("Nesterov momentum", {"momentum": MOMENTUM, "nesterov": True}),
)


def read_by_match(
    first: Received, read: Understood, steps: int, search: Callable[[str], Received]
) -> tuple[Received, Understood]:
    """Return the search whose records reproduce the update, and the optimizer that it assumes.

    SGD with a momentum is tried where records under SGD without one do not reproduce the update:
    its steps have another size, which labels and layers cannot make up for. Where no momentum
    reproduces it, the first search counts.

    Args:
        first: the search under the optimizer that was assumed.
        read: that optimizer.
        steps: local steps of the update.
        search: makes a search under the optimizer that a text names.
    """
    plain = read.optimizer.partition(":")[0] == SGD
    if not plain or first.matched is None or first.matched >= MATCHED:
        return first, read
    for name, settings in TRIED:
        if steps == 1 and "nesterov" not in settings:
            continue  # the first step with a momentum is a plain one
        optimizer = with_settings(read.optimizer, settings)
        tried = search(optimizer)
        if tried.matched is not None and tried.matched >= MATCHED:
            ours, plainly = (f"{100 * share:.1f} %" for share in (tried.matched, first.matched))
            said = (
                f"SGD with a {name} of {MOMENTUM}, whose search reproduces the update to {ours} "
                f"(without it: {plainly}; no optimizer is named)"
            )
            return tried, Understood(optimizer, said)
    return first, read
