"""The floor that turns records into one self-contained HTML page. It computes no audit figures."""

from leakgauge.inference.report.cells import Cell, cells, utility
from leakgauge.inference.report.defenses import answer, panels
from leakgauge.inference.report.promises import (
    NO_CERTIFICATE,
    Implied,
    Promise,
    guarantee,
    implied,
    promises,
)
from leakgauge.inference.report.verdict import Level, Verdict, verdicts
from leakgauge.report.page import render, write_report

__all__ = [
    "NO_CERTIFICATE",
    "Cell",
    "Implied",
    "Level",
    "Promise",
    "Verdict",
    "answer",
    "cells",
    "guarantee",
    "implied",
    "panels",
    "promises",
    "render",
    "utility",
    "verdicts",
    "write_report",
]
