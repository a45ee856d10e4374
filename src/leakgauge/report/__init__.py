"""The floor that turns records into one self-contained HTML page. It computes no audit figures."""

from leakgauge.report.cells import Cell, cells, utility
from leakgauge.report.page import render, write_report
from leakgauge.report.verdict import Level, Verdict, verdicts

__all__ = ["Cell", "Level", "Verdict", "cells", "render", "utility", "verdicts", "write_report"]
