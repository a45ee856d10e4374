"""The question where in the network it leaks."""

from leakgauge.layers.spec import LayersSpec
from leakgauge.layers.words import QUESTION as NAME
from leakgauge.runs.question import Question
from leakgauge.runs.room import OLD_CHECK, OLD_PREPARE, Room

QUESTION: Question = Room(
    name=NAME,
    title="Where in the network does it leak?",
    asks={NAME: "which layers of the network give the secret away, and which to protect first?"},
    Spec=LayersSpec,
    home="leakgauge.layers",
    places={
        "check": OLD_CHECK,
        "prepare": OLD_PREPARE,
    },
)
