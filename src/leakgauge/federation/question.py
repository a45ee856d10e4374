"""The question what the kept updates of a real federation give away."""

from leakgauge.federation.spec import FederationSpec
from leakgauge.federation.words import ASKS, NAME, TITLES
from leakgauge.runs.question import Question
from leakgauge.runs.room import OLD_CHECK, OLD_PREPARE, Room

QUESTION: Question = Room(
    name=NAME,
    title="What do the kept updates give away?",
    asks={ask: f"{TITLES[ask]} (of kept updates)" for ask in ASKS},
    Spec=FederationSpec,
    home="leakgauge.federation",
    places={
        "check": OLD_CHECK,
        "prepare": OLD_PREPARE,
        "badge": "leakgauge.runs.room:no_badge",
    },
)
