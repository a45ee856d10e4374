"""The question what secrets gradients give away."""

from leakgauge.inference.spec import ASKS, InferenceSpec
from leakgauge.runs.question import Question
from leakgauge.runs.room import Room

QUESTION: Question = Room(
    name="inference",
    title="What secrets do gradients give away?",
    asks=ASKS,
    Spec=InferenceSpec,
    home="leakgauge.inference",
    places={"to_json": "report.plain:to_json", "charts": "report.grid:charts"},
)
