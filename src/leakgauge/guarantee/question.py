"""The question whether a promised guarantee holds."""

from leakgauge.guarantee.spec import QUESTION as NAME
from leakgauge.guarantee.spec import GuaranteeSpec
from leakgauge.runs.question import Question
from leakgauge.runs.room import OLD_CHECK, OLD_PREPARE, Room

QUESTION: Question = Room(
    name=NAME,
    title="Does the promised guarantee hold?",
    asks={NAME: "does DP-SGD hide an attribute of a single record?"},
    Spec=GuaranteeSpec,
    home="leakgauge.guarantee",
    places={
        "check": OLD_CHECK,
        "prepare": OLD_PREPARE,
        "run": "run.audit:run",
        "badge": "report.grid:badge",
        "charts": "report.grid:charts",
    },
)
