"""The frame of a report, without any question's figures."""

from markupsafe import Markup

from leakgauge.report.page import title_of
from leakgauge.report.section import Row, Section


def section(name: str, secret: str = "") -> Section:
    row = Row(ask="property", verdict="", level="none", text="", secret=secret)
    return Section(name, name, Markup(""), [row])


def test_titles_tell_the_sections_of_one_question_apart() -> None:
    several = [section("inference", "sex"), section("inference-2", "race"), section("guarantee")]
    assert [title_of(one, several) for one in several] == [
        "inference sex", "inference-2 race", "guarantee",
    ]  # fmt: skip
    assert title_of(several[0], several[:1]) == "inference"
