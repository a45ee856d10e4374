"""What a page, JSON and a folder say of single records: row numbers, never values."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from leakgauge.report.exposure import MOST, exposure_as_json, exposure_html
from leakgauge.results.exposure import exposures
from leakgauge.results.record_tests import RecordTest, against_others
from leakgauge.runs.exposure import exposure_csv


def members(**more) -> RecordTest:
    scores, others = np.arange(60.0) + 960, np.arange(999.0)
    p_value, excess = against_others(scores, others)
    words = {"ask": "membership", "adversary": "loss", "versus": "others", **more}
    none = np.empty(0)
    return RecordTest(
        rows=np.arange(60) + 100,
        p_value=p_value,
        excess=excess,
        others=np.full(60, 999),
        figure=none,
        guess=none,
        unit=np.empty(0, dtype=np.int64),
        **words,
    )


def rebuilt() -> RecordTest:
    return RecordTest(
        ask="reconstruction",
        adversary="exact",
        rows=np.array([159, 7]),
        p_value=np.array([0.001, 0.5]),
        excess=np.array([3.0, -1.0]),
        others=np.array([999, 999]),
        versus="others",
        figure=np.array([1.0, 0.5]),
        guess=np.array([0.4, 0.4]),
        metric="Columns right",
        unit=np.empty(0, dtype=np.int64),
        worst="Row 7 is a <b>worst</b> one.",
    )


def test_a_page_shows_twenty_records_by_row_and_says_who_was_not_attacked() -> None:
    page = str(exposure_html(exposures([members(), rebuilt()])))
    assert page.count('<th scope="row">') == MOST + 2, "and a line for each test"
    assert page.index(">159</th>") < page.index(">158</th>")
    assert "0 of 999; Columns right 1.000, guess 0.400" in page
    assert "not attacked" in page
    assert "<b>worst</b>" not in page
    assert exposure_html([]) == ""


def test_json_and_csv_have_the_order_of_the_page() -> None:
    found = exposures([members(), rebuilt(), members(defense="sign")])
    values = json.loads(json.dumps(exposure_as_json(found), allow_nan=False))
    assert [one["defense"] for one in values] == ["none", "sign"]
    assert [one["row"] for one in values[0]["records"]][:2] == [159, 158]
    assert values[0]["records"][1]["by_test"][1] == {"status": "not attacked"}
    assert (
        "named above chance without a defense; if nothing leaks, at most 5 % of"
        in values[0]["says"]
    )


def test_csv_has_every_attacked_record_under_each_defense(tmp_path: Path) -> None:
    found = exposures([members(), rebuilt(), members(defense="sign")])
    path = tmp_path / "exposure.csv"
    path.write_text(exposure_csv(found), encoding="utf-8")
    table = pd.read_csv(path)
    assert len(table) == 61 + 60
    assert table.defense.value_counts().to_dict() == {"none": 61, "sign": 60}
    assert table.row[0] == 159
