"""The floor that turns records into one self-contained HTML page. It computes no audit figures."""

from leakgauge.report.page import render, write_report
from leakgauge.report.verdict import Level, Verdict, verdicts

__all__ = ["Level", "Verdict", "render", "verdicts", "write_report"]
