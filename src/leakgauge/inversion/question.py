"""The question whether records can be rebuilt."""

from leakgauge.inversion.spec import InversionSpec
from leakgauge.inversion.words import NAME
from leakgauge.runs.question import Question
from leakgauge.runs.room import Room

QUESTION: Question = Room(
    name=NAME,
    title="Can the records be rebuilt?",
    asks={NAME: "whole records of a batch, rebuilt from its gradient"},
    Spec=InversionSpec,
    home="leakgauge.inversion",
    places={
        "metrics": "metrics.table:METRICS",
        "badge": "report.levels:badge",
        "charts": "report.curves:charts",
    },
)
