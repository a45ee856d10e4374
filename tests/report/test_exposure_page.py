"""What a page, JSON and a folder say of single records: row numbers, never values."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from leakgauge.report.exposure import MOST, exposure_as_json, exposure_html
from leakgauge.results.exposure import exposures
from leakgauge.results.record_tests import RecordTest, against_others
from leakgauge.runs.exposure import exposure_csv
from support import command
from support.sources import people, pictures


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


def test_values_are_shown_only_where_the_user_asks(tmp_path: Path) -> None:
    path, out = tmp_path / "loans.csv", tmp_path / "run"
    frame = people(300).assign(note=[f"note{at}<b>" for at in range(300)])
    frame.to_csv(path, index=False)
    words = ("audit", path, "--label", "income", "--secret", "sex", "--ask", "property")
    few = ("--trials", 200, "--set", "inference.rounds=1", "--out", out)
    few = (*few, "--adversary", "energies", "--shadow", 120, "--hidden", 8)
    page = out / "report.html"

    assert command.run(*words, *few).returncode == 0
    assert not (out / "exposed-values.csv").exists()
    assert "note1" not in page.read_text("utf-8")

    asked = command.run(*words, *few, "--show-values")
    assert asked.returncode == 0, asked.stderr
    told = page.read_text("utf-8")
    first = int(pd.read_csv(out / "exposure.csv")["row"][0])
    assert f"note{first}&lt;b&gt;" in told
    assert "This page shows private records" in told
    assert f"note{first}<b>" not in told
    assert command.run("report", out).returncode == 0
    assert f"note{first}&lt;b" in page.read_text("utf-8"), "the report made anew shows them, too"

    assert command.run(*words, *few).returncode == 0
    assert not (out / "exposed-values.csv").exists(), "another run without the option"


def test_images_have_no_values_to_show(tmp_path: Path) -> None:
    path = tmp_path / "set.npz"
    source = pictures(60, side=32)
    np.savez(path, x=source.pixels.transpose(0, 2, 3, 1), y=source.frame["y"].to_numpy())
    words = ("audit", path, "--label", "y", "--ask", "membership", "--show-values")
    ended = command.run(*words, "--out", tmp_path / "run")
    assert ended.returncode == 2
    assert "--show-values shows the rows of a table" in ended.stderr
