"""A result shows itself in a notebook: verdicts as a table, names of columns as code."""

from typing import Any

from leakgauge.report.section import Row, Section
from leakgauge.result import Result
from leakgauge.results.measurements import Estimate


def test_a_notebook_shows_names_as_code_and_escapes_the_rest() -> None:
    half = Estimate(0.5, 0.4, 0.6, 100)
    row = Row("property", "Weak", "weak", "it infers `a<b` & `sex`", metric="AUROC", estimate=half)
    run: Any = None  # not read
    html = Result(run, [Section("inference", "?", "", [row])])._repr_html_()  # type: ignore[arg-type]
    assert "it infers <code>a&lt;b</code> &amp; <code>sex</code></td>" in html
    assert "AUROC 0.500, 0.400 to 0.600" in html
    assert "`" not in html
