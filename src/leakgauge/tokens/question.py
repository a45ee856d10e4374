"""The question when in training it leaks."""

from leakgauge.runs.question import Question
from leakgauge.runs.room import OLD_CHECK, OLD_PREPARE, Room
from leakgauge.tokens.spec import TimelineSpec
from leakgauge.tokens.words import QUESTION as NAME

QUESTION: Question = Room(
    name=NAME,
    title="When in training does it leak?",
    asks={NAME: "when in training do gradients reveal most about their batch?"},
    Spec=TimelineSpec,
    home="leakgauge.tokens",
    places={
        "check": OLD_CHECK,
        "prepare": OLD_PREPARE,
        "charts": "report.grid:charts",
    },
)
