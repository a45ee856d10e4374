"""The floor that turns records into one self-contained HTML page. It computes no audit figures."""

from leakgauge.report.page import render, write_report
from leakgauge.report.verdict import Level, Verdict, smallest_visible, verdicts

__all__ = ["Level", "Verdict", "render", "smallest_visible", "verdicts", "write_report"]
