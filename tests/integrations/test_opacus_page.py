"""docs/how-to/opacus.md: its Python runs as it stands, in one session, and shows what it says."""

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "opacus.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.filterwarnings("ignore")  # those of Opacus
def test_python_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    session: dict[str, Any] = {}
    for one in BLOCKS:
        exec(compile(one, "opacus.md", "exec"), session)
    assert not session["result"].flagged
    assert session["many"].flagged
    assert session["result"].verdict.startswith("Training does what it says, as far as 1")
    assert session["claim"].epsilon == pytest.approx(1.2, abs=0.02)
    shown = capsys.readouterr().out
    for name in (
        "claimed by the accountant",
        "one run (Steinke et al. 2023)",
        "160 runs",
        "2.weight",
    ):
        assert name in shown
    assert "REFUTED by 160 runs" in shown
