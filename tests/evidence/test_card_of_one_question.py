"""Cards of commands that ask a single question, and of runs with defenses."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from leakgauge.core.files import read_yaml, write_yaml
from leakgauge.evidence.card_model import card_schema
from support.command import run
from support.tables import frame

pytestmark = pytest.mark.usefixtures("blank_charts")


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("data") / "people.csv"
    frame(600).to_csv(path, index=False)
    return path


def card_of(folder: Path, *words: object, code: int = 0) -> dict[str, Any]:
    ended = run(*words, "--out", folder)
    assert ended.returncode == code, ended.stderr
    ended = run("card", folder, "--out", folder / "evidence")
    assert ended.returncode == 0, ended.stderr
    card = folder / "evidence/audit-card.json"
    assert run("verify", card, folder).returncode == 0
    found = json.loads(card.read_text(encoding="utf-8"))
    jsonschema.validate(found, card_schema(), jsonschema.Draft202012Validator)
    return found


def test_a_card_of_a_guarantee_and_equal_runs_give_equal_cards(table: Path, tmp_path: Path) -> None:
    words = ["guarantee", table, "--attribute", "sex", "--label", "income", "--canary", "random"]
    words += ["--trials", 60, "--hidden", 4, "--clip", 1, "--noise", 1]
    one, other = (card_of(tmp_path / name, *words) for name in ("one", "other"))
    (status,) = [each for each in one["coverage"] if each["status"] == "executed"]
    assert status["ask"] == "guarantee"
    assert one["unit_of_privacy"]["unit"] == "record"
    own = ("seal", "files", "page")  # seconds stand in the files, and differ
    assert {k: v for k, v in one.items() if k not in own} == {
        k: v for k, v in other.items() if k not in own
    }


def test_a_card_of_a_broken_promise_says_so(table: Path, tmp_path: Path) -> None:
    """A tenth of the noise's epsilon is claimed: see ``leakgauge.guarantee.controls.no_noise``."""
    words = ["guarantee", table, "--attribute", "sex", "--label", "income", "--canary", "random"]
    words += ["--trials", 400, "--hidden", 4, "--clip", 1, "--noise", 100, "--mechanism"]
    card = card_of(tmp_path / "run", *words, "leakgauge.guarantee.controls:no_noise", code=3)
    (one,) = card["questions"]
    assert one["epsilons"][0]["outcome"] == "refuted"
    assert one["results"][0]["verdict"] == "The promise does not hold"
    assert one["results"][0]["figure"]["high"] is None


def test_a_card_of_rebuilt_records_shows_none(table: Path, tmp_path: Path) -> None:
    words = ["invert", table, "--label", "income", "--drop", "person", "--images", 2]
    card = card_of(tmp_path / "run", *words, "--hidden", 8)
    (one,) = card["questions"]
    (worst,) = one["worst"]
    assert worst["label"].startswith("attacked record")
    assert worst["value"] > 0.9
    text = (tmp_path / "run/evidence/audit-card.md").read_text(encoding="utf-8")
    rebuilt = json.loads((tmp_path / "run/cells/reconstruction/rows.json").read_text())
    heights = [row["height"] for row in rebuilt["truth"]]
    assert heights
    assert not [one for one in heights if one in text]


def test_static_and_adaptive_stand_beside_each_other(table: Path, tmp_path: Path) -> None:
    words = ["audit", table, "--label", "income", "--secret", "sex", "--rounds", 1, "--trials", 60]
    words += ["--adversary", "logistic", "--shadow", 150, "--hidden", 4, "--drop", "person"]
    card = card_of(tmp_path / "run", *words, "--defense", "dpsgd:clip=1,noise=1")
    (one,) = card["questions"]
    none, defended = one["defenses"]
    assert (none["defense"], none["adaptive"]) == ("none", None)
    assert defended["static"] is not None
    assert defended["adaptive"] is not None
    assert all("record" in each["neighbours"] for each in one["epsilons"])
    assert any(each["claimed"] for each in one["epsilons"])


def test_what_the_data_do_not_allow_is_out_of_scope(table: Path, tmp_path: Path) -> None:
    """Without a column of users users cannot be identified by their records."""
    words = ["audit", table, "--label", "income", "--secret", "sex", "--ask", "property"]
    words += ["--ask", "guarantee", "--rounds", 1, "--trials", 60, "--adversary", "logistic"]
    words += ["--shadow", 150, "--hidden", 4, "--set", "guarantee.canary=random"]
    folder = tmp_path / "run"
    card_of(folder, *words)
    values = read_yaml(folder / "run.yaml")
    write_yaml(folder / "run.yaml", {**values, "notes": ["`user`: name users with --group"]})
    run("report", folder)
    run("card", folder)
    found = json.loads((folder / "audit-card.json").read_text(encoding="utf-8"))
    (user,) = [one for one in found["coverage"] if one["ask"] == "user"]
    assert user["status"] == "out of scope"
    assert "--group" in user["reason"]
