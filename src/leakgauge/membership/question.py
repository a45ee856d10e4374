"""The question whose records a model was trained on."""

from leakgauge.membership.spec import QUESTION as NAME
from leakgauge.membership.spec import MembershipSpec
from leakgauge.runs.question import Question
from leakgauge.runs.room import OLD_CHECK, OLD_PREPARE, Room

QUESTION: Question = Room(
    name=NAME,
    title="Whose records were used?",
    asks={NAME: "does the model reveal whose records it was trained on?"},
    Spec=MembershipSpec,
    home="leakgauge.membership",
    places={
        "check": OLD_CHECK,
        "prepare": OLD_PREPARE,
    },
)
