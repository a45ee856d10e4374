"""The question what the kept updates of a real federation give away."""

from leakgauge.federation.spec import ASKS, NAME, TITLES, FederationSpec
from leakgauge.runs.question import Question
from leakgauge.runs.room import Room

QUESTION: Question = Room(
    name=NAME,
    title="What do the kept updates give away?",
    asks={ask: f"{TITLES[ask]} (of kept updates)" for ask in ASKS},
    Spec=FederationSpec,
    home="leakgauge.federation",
    places={
        "to_json": "report.assessment:as_json",
        "controls": "report.assessment:controls",
        "badge": "leakgauge.runs.room:no_badge",
    },
)
