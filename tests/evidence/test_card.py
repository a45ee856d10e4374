"""Audit cards: their schema, what they say, and that every changed byte is seen."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leakgauge.catalog import questions
from leakgauge.core.checks import InputError
from leakgauge.core.files import read_yaml, write_yaml
from leakgauge.evidence.card import make_card
from leakgauge.evidence.card_file import CARD_FILE, PAGE_FILE, card_text, verify, write_card
from leakgauge.evidence.card_model import SCHEMA_FILE, card_schema
from leakgauge.evidence.context import Context, read_context
from leakgauge.results.measurements import read_measurements
from support.audited import KEYS, audit_everything
from support.command import run
from support.tables import frame

pytestmark = pytest.mark.usefixtures("blank_charts")


def schema() -> dict[str, Any]:
    text = files("leakgauge.evidence").joinpath(SCHEMA_FILE).read_text(encoding="utf-8")
    return json.loads(text)


@pytest.fixture(scope="module")
def audited(tmp_path_factory) -> Path:
    out, ended = audit_everything(tmp_path_factory.mktemp("six"))
    assert ended.returncode == 0, ended.stderr
    return out


@pytest.fixture(scope="module")
def carded(audited: Path, tmp_path_factory) -> Path:
    """A copy of the run with its card."""
    folder = tmp_path_factory.mktemp("carded") / "run"
    shutil.copytree(audited, folder)
    ended = run("card", folder)
    assert ended.returncode == 0, ended.stderr
    return folder


@pytest.fixture(scope="module")
def card(carded: Path) -> dict[str, Any]:
    return json.loads((carded / CARD_FILE).read_text(encoding="utf-8"))


def test_the_schema_in_the_package_is_that_of_the_classes() -> None:
    """Made anew by ``leakgauge schema --card``."""
    jsonschema.Draft202012Validator.check_schema(schema())
    assert schema() == card_schema() == json.loads(run("schema", "--card").stdout)


def test_a_card_of_all_six_questions_fits_its_schema(card: dict[str, Any]) -> None:
    jsonschema.validate(card, schema(), jsonschema.Draft202012Validator)
    assert tuple(one["key"] for one in card["questions"]) == tuple(KEYS.values())


def test_a_card_with_an_unknown_key_or_an_infinite_number_does_not_fit(card) -> None:
    for broken in ({**card, "more": 1}, {key: card[key] for key in card if key != "seal"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, schema(), jsonschema.Draft202012Validator)


def test_every_result_is_a_measurement_of_the_run(card: dict[str, Any], audited: Path) -> None:
    known = {
        (one.question, one.metric, one.adversary, one.estimate.value, one.estimate.low)
        for one in read_measurements(audited)
    }
    for one in card["questions"]:
        assert any(row["leads"] for row in one["results"])
        for row in one["results"]:
            figure = row["figure"]
            key = (one["key"], row["metric"], row["adversary"], figure["value"], figure["low"])
            assert key in known
            assert figure["n"] >= 1


def test_every_question_names_its_adversary(card: dict[str, Any]) -> None:
    for one in card["questions"]:
        threat = one["threat"]
        assert all(threat[name] for name in ("goal", "knows", "does", "lacks", "nist", "edpb"))
        assert all(name.startswith("NISTAML.03") for name in threat["nist"])
        assert one["limits"]


def test_the_coverage_has_every_question_once(card: dict[str, Any]) -> None:
    status = {one["ask"]: one["status"] for one in card["coverage"]}
    assert len(status) == len(card["coverage"])
    every = [word for one in questions().values() for word in one.asks]
    assert list(status)[: len(every)] == every
    assert {word for word, what in status.items() if what == "executed"} == set(KEYS)
    assert status["attribute"] == "not asked"
    assert status["regurgitation"] == "out of scope"
    assert all(one["reason"] for one in card["coverage"] if one["status"] != "executed")
    reasons = {one["ask"]: one["reason"] for one in card["coverage"]}
    assert reasons["attribute"] == "leakgauge audit asks it with --ask attribute"
    kept = reasons["kept-reconstruction"]
    assert kept == "leakgauge federation asks it, about other files", "no audit asks it"


def test_a_card_holds_no_record(card: dict[str, Any], carded: Path) -> None:
    """Heights have many digits, so a record's height would be found."""
    text = json.dumps(card) + (carded / PAGE_FILE).read_text(encoding="utf-8")
    heights = [f"{one:.3f}" for one in frame(900)["height"]]
    assert not [one for one in heights if one in text]


def test_epsilon_stands_beside_its_claim(card: dict[str, Any]) -> None:
    (one,) = [each for each in card["questions"] if each["key"] == "guarantee"]
    first = one["epsilons"][0]
    assert first["measured"]["low"] <= first["claimed"]
    assert "one record" in first["neighbours"]
    assert first["delta"] == 1e-5


def test_users_are_the_unit_where_they_are_known(card: dict[str, Any]) -> None:
    assert card["unit_of_privacy"]["unit"] == "user"
    sizes = next(one["data"] for one in card["questions"] if one["key"] == "inference")
    assert sizes["records"] == 900
    assert sizes["users"] == 450
    assert sum(sizes["secret_values"].values()) == 900


def test_nothing_is_declared_by_itself(card: dict[str, Any], carded: Path) -> None:
    assert set(card["context"].values()) == {"not declared"}
    assert "| Owner | not declared |" in (carded / PAGE_FILE).read_text(encoding="utf-8")


def test_the_same_run_gives_the_same_card(audited: Path) -> None:
    one, other = (make_card(audited, questions(), Context()) for _ in range(2))
    assert card_text(one) == card_text(other)


def test_a_redacted_card_names_nobody(audited: Path) -> None:
    plain, redacted = (
        make_card(audited, questions(), Context(), redact=redact) for redact in (False, True)
    )
    labels = [one.label for each in plain.questions for one in each.worst]
    assert labels
    assert "withheld" not in labels
    assert {one.label for each in redacted.questions for one in each.worst} == {"withheld"}


# --- context --------------------------------------------------------------------------------------


def test_a_context_is_what_the_user_declares(tmp_path: Path) -> None:
    path = tmp_path / "release.yaml"
    path.write_text("system: S\nrelease: [a, b]\ndate: 2026-01-31\nowner:\n", encoding="utf-8")
    found = read_context(path)
    assert (found.system, found.release, found.date) == ("S", "a; b", "2026-01-31")
    assert found.owner == found.contact == "not declared"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ownr: A", "did you mean 'owner'"),
        ("- a", "holds list"),
        ("owner: {a: 1}", "expected text"),
        ("owner: [", "is not YAML"),
    ],
)
def test_a_wrong_context_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "release.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_context(path)
    assert run("card", tmp_path, "--context", path).returncode == 2


def test_a_page_cannot_be_broken_by_what_is_declared(audited: Path, tmp_path: Path) -> None:
    evil = Context(owner="a|b <script>x</script> [l](http://x)\n# h")
    write_card(make_card(audited, questions(), evil), tmp_path)
    (line,) = [one for one in (tmp_path / PAGE_FILE).read_text().splitlines() if "| Owner" in one]
    assert "<script" not in line
    assert line.count("|") == 4  # three of the table, one escaped
    assert "[l]" not in line


# --- decision -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_decision_is_that_of_the_gate(audited: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(audited, folder)
    assert make_card(folder, questions(), Context()).decision.decision == "no rule was given"
    assert run("report", folder, "--fail-if", "auroc.low > 0.1").returncode == 3
    gate = json.loads((folder / "gate.json").read_text(encoding="utf-8"))
    card = make_card(folder, questions(), Context())
    assert card.decision.decision == "fail"
    assert card.decision.rules[0].figures == gate["rules"][0]["figures"]
    assert "gate.json" in card.files
    passed = {**gate, "decision": "pass"}
    for forged in ({"decision": "maybe"}, passed, {**gate, "rules": []}, {**gate, "more": 1}):
        (folder / "gate.json").write_text(json.dumps(forged), encoding="utf-8")
        with pytest.raises(InputError, match=r"gate\.json"):
            make_card(folder, questions(), Context())


def test_a_page_of_other_figures_is_refused(audited: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(audited, folder)
    page = folder / "report.html"
    page.write_text(page.read_text(encoding="utf-8").replace("0", "1", 1), encoding="utf-8")
    ended = run("card", folder)
    assert ended.returncode == 2
    assert f"leakgauge report {folder} writes it anew" in ended.stderr
    assert run("report", folder).returncode == 0
    assert run("card", folder).returncode == 0


# --- refusals -------------------------------------------------------------------------------------


def test_figures_that_are_not_those_of_the_cells_are_refused(audited: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(audited, folder)
    path = folder / "measurements.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]), encoding="utf-8")
    ended = run("card", folder)
    assert ended.returncode == 2
    assert "does not hold the figures of the cells" in ended.stderr
    assert not (folder / CARD_FILE).exists()


def test_a_grid_is_refused(audited: Path, tmp_path: Path) -> None:
    values = {**read_yaml(audited / "run.yaml"), "command": "run"}
    write_yaml(tmp_path / "run.yaml", values)
    ended = run("card", tmp_path)
    assert ended.returncode == 2
    assert "holds a grid" in ended.stderr


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    assert run("card", tmp_path).returncode == 2
    assert run("card", tmp_path / "none").returncode == 2


# --- verify ---------------------------------------------------------------------------------------


def test_a_fresh_card_matches(carded: Path) -> None:
    ended = run("verify", carded / CARD_FILE, carded)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_seal_is_the_checksum_of_the_file_with_an_empty_seal(carded: Path) -> None:
    text = (carded / CARD_FILE).read_text(encoding="utf-8")
    seal = json.loads(text)["seal"]
    bare = text.replace(seal, "", 1)
    assert hashlib.sha256(bare.encode()).hexdigest() == seal


def covered(folder: Path) -> list[Path]:
    card = json.loads((folder / CARD_FILE).read_text(encoding="utf-8"))
    return [folder / name for name in (CARD_FILE, PAGE_FILE, *card["files"])]


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_one_changed_byte_anywhere_is_seen(data: st.DataObject, carded: Path) -> None:
    path = data.draw(st.sampled_from(covered(carded)))
    content = path.read_bytes()
    at = data.draw(st.integers(0, len(content) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda one: one != content[at]))
    try:
        path.write_bytes(content[:at] + bytes([byte]) + content[at + 1 :])
        found = verify(carded / CARD_FILE, carded)
    finally:
        path.write_bytes(content)
    assert len(found) == 1
    assert path.name in found[0]


@pytest.mark.parametrize(("old", "new"), [(b"\n", b"\r"), (b"  ", b" \t"), (b"}\n", b"} ")])
def test_a_byte_between_the_values_of_a_card_is_seen(old: bytes, new: bytes, carded: Path) -> None:
    """The values, and with them the seal, stay as they are."""
    path = carded / CARD_FILE
    content = path.read_bytes()
    assert json.loads(content.replace(old, new, 1)) == json.loads(content)
    try:
        path.write_bytes(content.replace(old, new, 1))
        (line,) = verify(path, carded)
    finally:
        path.write_bytes(content)
    assert "not written as leakgauge writes it" in line


def changed(folder: Path) -> Iterator[tuple[str, str]]:
    """Ways to change a run, and what ``verify`` says."""
    name = "cells/membership/at-risk.json"
    (folder / name).rename(folder / "kept")
    yield name, "is missing"
    (folder / "kept").rename(folder / name)
    (folder / "cells/membership/more.txt").write_text("x")
    yield "cells/membership/more.txt", "not in the card"
    (folder / "cells/membership/more.txt").unlink()
    (folder / "gate.json").write_text("{}")
    yield "gate.json", "not in the card"
    (folder / "gate.json").unlink()


def test_a_missing_or_an_added_file_is_named(carded: Path) -> None:
    for name, what in changed(carded):
        ended = run("verify", carded / CARD_FILE, carded)
        assert ended.returncode == 3
        (line,) = ended.stderr.splitlines()
        assert name in line
        assert what in line
    assert verify(carded / CARD_FILE, carded) == []


def test_a_card_of_another_run_does_not_match(carded: Path, audited: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(audited, folder)
    lines = (folder / "measurements.jsonl").read_text().splitlines(keepends=True)
    (folder / "measurements.jsonl").write_text("".join(lines[::-1]))
    assert verify(carded / CARD_FILE, folder) == [
        "measurements.jsonl: was changed since the card was made"
    ]


def test_wrong_usage_is_no_difference(carded: Path, tmp_path: Path) -> None:
    assert run("verify", tmp_path / "none.json", carded).returncode == 2
    assert run("verify", carded / CARD_FILE, tmp_path / "none").returncode == 2
