"""The question what secrets gradients give away."""

from leakgauge.inference.settings import ASKS
from leakgauge.inference.spec import InferenceSpec
from leakgauge.runs.question import Question
from leakgauge.runs.room import OLD_CHECK, OLD_PREPARE, Room

QUESTION: Question = Room(
    name="inference",
    title="What secrets do gradients give away?",
    asks=ASKS,
    Spec=InferenceSpec,
    home="leakgauge.inference",
    places={
        "check": OLD_CHECK,
        "prepare": OLD_PREPARE,
        "to_json": "report.plain:to_json",
        "charts": "report.grid:charts",
    },
)
