"""What was trained, and what the attacker sees and does, in sentences."""

from collections.abc import Mapping
from typing import Any

from leakgauge.membership.words import ASCENT, BOTH, GLOBAL, ISOLATE, PARTS, SECOND
from leakgauge.report.wording import percent, plain

_TOLD_APART = {
    "members": "members from others",
    "first": "records of the first training from others",
    SECOND: "records of the second training from others",
    PARTS: "records of the first training (members) from those of the second (others)",
}
_DOES = {
    ASCENT: "It raises the loss of targets and known records in each round ({form}).",
    ISOLATE: "It gives each attacked participant its own model back, not the average.",
    BOTH: (
        "It gives each attacked participant its own model back, not the average, and raises the "
        "loss of targets and known records in each round ({form})."
    ),
}


def situation(settings: Mapping[str, Any]) -> str:
    """Return the sentences; empty for one model that is trained in one place.

    Args:
        settings: of the run.

    >>> situation({"checkpoint": ["a.pt", "b.pt"]})
    'The attacker sees 2 snapshots of a model that existed already.'
    """
    if settings.get("checkpoint"):
        count = len(settings["checkpoint"])
        seen = "a model" if count == 1 else f"{count} snapshots of a model"
        return f"The attacker sees {seen} that existed already."
    if settings.get("participants", 1) > 1:
        return _of_federation(settings)
    return _of_fine_tuning(settings) if settings.get("fine_tune") else ""


def when(settings: Mapping[str, Any]) -> str:
    """Return what the training counts: epochs, or rounds of a federation."""
    return "round" if settings.get("participants", 1) > 1 else "epoch"


def _of_federation(settings: Mapping[str, Any]) -> str:
    count = settings["participants"]
    is_global = settings.get("attacker", GLOBAL) == GLOBAL
    who = (
        "The attacker is the server: it sees what each participant uploads, and attacks each by "
        "itself. Figures are means over participants."
        if is_global
        else "The attacker is a participant: it sees the averages alone, and asks whether a record "
        "is anybody else's."
    )
    does = _DOES.get(settings.get("strategy", ""), "").format(form=settings.get("ascent", ""))
    kept = settings.get("observed")
    rounds = f" It keeps rounds {plain(kept)}." if kept else ""
    return f"FedAvg with {count} participants. {who}{rounds} {does}".strip()


def _of_fine_tuning(settings: Mapping[str, Any]) -> str:
    second = percent(settings["fine_tune"])
    both = settings.get("snapshots", 1) > 1
    seen = "before and after that" if both else "after that"
    return (
        f"The model was trained on some members first, and then on the other {second} alone. The "
        f"attacker sees it {seen}, and tells {_TOLD_APART[settings.get('apart', 'members')]}."
    )
