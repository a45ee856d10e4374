"""``leakgauge promise``, and the warnings of other commands about claims that are wrong."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from leakgauge.catalog import questions
from leakgauge.cli.promise_table import promise_table
from leakgauge.defenses.doubts import large
from leakgauge.integrations.filter_files import read_filters
from leakgauge.integrations.filter_promises import PromiseTerms, promise_of
from leakgauge.privacy.promises import Neighbours, SparseRelease
from leakgauge.runs.room import doubted_claims
from leakgauge.runs.spec import declared, make_spec
from support import bound, command, gated_audit

pytestmark = pytest.mark.usefixtures("blank_charts")

FLIP = "local-dp:clip=1,sensitivity=0.0001,epsilon=10,delta=1e-05"
FLAGGED = "claims epsilon 10, but its sensitivity 0.0001 is below its clip 1"
NOT_PRIVATE = "`percentile-privacy` gives no differential privacy"
CLIENT = {
    "format_version": 2,
    "executors": [{"tasks": ["train"], "executor": {"path": "mine.Trainer"}}],
    "task_result_filters": [
        {
            "tasks": ["train"],
            "filters": [
                {"path": "nvflare.app_common.filters.svt_privacy.SVTPrivacy", "args": {}},
                {"name": "PercentilePrivacy"},
                {
                    "path": "mine.DPFilter",
                    "args": {"clip": 1, "sensitivity": 1e-4, "epsilon": 10, "delta": 1e-5},
                },
            ],
        }
    ],
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config_fed_client.json"
    path.write_text(json.dumps(CLIENT))
    return path


def answer(path: Path, *words: object) -> dict[str, Any]:
    ended = command.run("promise", path, "--json", *words)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def row(text: str, name: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(name))


def test_the_table_has_claims_follows_and_what_to_write(config: Path) -> None:
    ended = command.run("promise", config, "--parameters", 7_033_300)
    assert ended.returncode == 0, ended.stderr
    svt, percentile, flip = (row(ended.stdout, f"{one} ") for one in
                             ("SVTPrivacy", "PercentilePrivacy", "DPFilter"))  # fmt: skip
    assert "epsilon 0.1  " in svt
    assert "epsilon 70,333 to 70,334" in svt
    assert "no differential privacy" in percentile
    assert "epsilon 10, delta 1e-05  epsilon 852 million, delta 1e-05" in flip
    assert "- DPFilter: sensitivity=2.07" in ended.stdout
    assert "at the clip its own formula gives epsilon 100,000" in ended.stdout
    assert "Unit of privacy: client, replaced." in ended.stdout


def test_unit_and_relation_change_what_follows(config: Path) -> None:
    found = {
        words: answer(config, "--unit", words[0], "--relation", words[1])["filters"][2]["follows"]
        for words in (("client", "add"), ("client", "replace"), ("record", "add"))
    }
    epsilons = [one["epsilon"] for one in found.values()]
    assert epsilons[0] == pytest.approx(2.13e8, rel=1e-2)
    assert epsilons[1] == epsilons[2] == pytest.approx(4 * epsilons[0], rel=1e-3)


def test_rounds_compose(config: Path) -> None:
    found = answer(config, "--rounds", 10, "--parameters", 1000)
    svt, percentile, flip = found["filters"]
    assert found["rounds"] == 10
    assert svt["training"]["least"] == pytest.approx(10 * svt["follows"]["least"])
    assert percentile["training"] is None
    assert flip["training"]["epsilon"] == pytest.approx(10 * flip["follows"]["epsilon"], rel=1e-3)


def test_an_edit_of_the_file_changes_the_answer(config: Path) -> None:
    before = answer(config)
    config.write_text(config.read_text().replace('"epsilon": 10', '"epsilon": 9'))
    assert answer(config) != before


def test_a_delta_above_one_over_the_units_is_said(config: Path) -> None:
    notes = answer(config, "--units", 200_000)["filters"][2]["notes"]
    assert "its delta 1e-05 is above 1/200000, so it may publish a whole client" in notes


def test_releases_show_a_lower_bound_beside_what_follows(config: Path) -> None:
    found = answer(config, "--shows", 500, "--parameters", 100)["filters"]
    svt, percentile, flip = found
    assert svt["shows"]["by"] == "Laplace test"
    assert svt["claims"]["epsilon"] < svt["shows"]["epsilon"] <= svt["follows"]["epsilon"]
    assert percentile["shows"]["epsilon"] > 4
    assert percentile["shows"]["by"] == "errors"
    assert (flip["shows"]["by"], flip["shows"]["confidence"]) == ("Gaussian test", 0.99)
    assert flip["claims"]["epsilon"] < flip["shows"]["epsilon"] <= flip["follows"]["epsilon"]
    text = command.run("promise", config, "--shows", 500).stdout
    assert "shows, one round" in text
    assert "or more at delta 1e-05 (Gaussian test, 99 %)" in row(text, "DPFilter ")
    assert "shows" not in command.run("promise", config).stdout
    assert answer(config)["filters"][2]["shows"] is None


@pytest.mark.parametrize(
    "strategy",
    [
        "DifferentialPrivacyServerSideFixedClipping: {noise_multiplier: 1.0, clipping_norm: 2, "
        "num_sampled_clients: 2}",
        "DifferentialPrivacyClientSideAdaptiveClipping: {noise_multiplier: 1.0, "
        "num_sampled_clients: 2}",
    ],
)
@pytest.mark.parametrize("relation", ["add", "replace"])
def test_releases_of_a_server_s_noise_show_nearly_what_follows(
    strategy: str, relation: str, tmp_path: Path
) -> None:
    path = tmp_path / "mods.yaml"
    path.write_text(f"strategy:\n  {strategy}\n")
    (found,) = answer(path, "--shows", 2000, "--relation", relation)["filters"]
    assert 0.8 < found["shows"]["epsilon"] / found["follows"]["epsilon"] <= 1


@pytest.mark.parametrize(("sensitivity", "code"), [(2.07, 0), (1e-4, 3)])
def test_exit_code_three_where_no_filter_keeps_the_epsilon(
    sensitivity: float, code: int, tmp_path: Path
) -> None:
    path = tmp_path / "mods.yaml"
    settings = f"clipping_norm: 1, sensitivity: {sensitivity}, epsilon: 10, delta: 1e-5"
    path.write_text(f"mods:\n  - LocalDpMod: {{{settings}}}\n  - fixedclipping_mod\n")
    ended = command.run("promise", path, "--fail-if", "epsilon > 10")
    assert ended.returncode == code, ended.stderr
    word = "fail" if code else "pass"
    assert f"gate: {word} (epsilon > 10): the epsilon is " in ended.stdout
    assert command.run("promise", path).returncode == 0


def test_noise_of_the_server_counts_for_the_published_model_alone(tmp_path: Path) -> None:
    path = tmp_path / "mods.yaml"
    path.write_text(
        "mods: [fixedclipping_mod]\nstrategy:\n  DifferentialPrivacyClientSideFixedClipping:\n"
        "    {noise_multiplier: 2, clipping_norm: 1, num_sampled_clients: 9}\n"
    )
    for rule, code in (("epsilon > 8", 3), ("published.epsilon > 8", 0)):
        assert command.run("promise", path, "--fail-if", rule).returncode == code
    both = ("--fail-if", "epsilon > 8", "--fail-if", "published.epsilon > 8")
    ended = command.run("promise", path, "--json", *both)
    assert ended.returncode == 3
    assert [one["fails"] for one in json.loads(ended.stdout)["gate"]] == [True, False]


def test_a_file_without_filters_is_an_answer_and_fails_a_rule(tmp_path: Path) -> None:
    path = tmp_path / "config_fed_server.json"
    path.write_text(json.dumps({"workflows": [], "task_result_filters": []}))
    ended = command.run("promise", path)
    assert ended.returncode == 0
    assert ended.stdout.startswith("The file switches on no filter of what a client sends")
    assert command.run("promise", path, "--fail-if", "epsilon > 8").returncode == 3


def test_nothing_is_cut_on_a_narrow_terminal(config: Path) -> None:
    asked = PromiseTerms(rounds=20)
    promises = [promise_of(one, asked) for one in read_filters(config).filters]
    for columns in (80, 120):
        text = io.StringIO()
        Console(file=text, width=columns).print(promise_table(promises, asked))
        assert "…" not in text.getvalue()
        assert "200,020" in text.getvalue()


def test_the_verdict_comes_first(config: Path) -> None:
    ended = command.run("promise", config, "--rounds", 20)
    said = "What a client sends keeps epsilon 200,000 to 200,020 over 20 rounds, which protects"
    assert ended.stdout.startswith(said)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--unit", "person"), "--unit is 'person'"),
        (("--relation", "remove"), "--relation is 'remove'"),
        (("--rounds", 0), "--rounds is 0"),
        (("--parameters", -1), "--parameters is -1"),
        (("--delta", 1), "--delta is 1"),
        (("--shows", 0), "--shows is 0"),
        (("--shows", 2), "4 trials cannot show any epsilon"),
        (("--fail-if", "epsilon < 8"), "--fail-if is 'epsilon < 8': a larger epsilon is worse"),
        (("--fail-if", "advantage > 8"), "--fail-if is 'advantage > 8'; expected epsilon or pub"),
        (("--fail-if", "epsilon 8"), "--fail-if is 'epsilon 8'; expected METRIC OP NUMBER"),
    ],
)
def test_wrong_options_are_one_line(words: tuple[object, ...], reason: str, config: Path) -> None:
    ended = command.run("promise", config, *words)
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"error: {reason}")
    assert ended.stderr.count("\n") == 1


def test_a_wrong_argument_names_the_file(config: Path) -> None:
    config.write_text(config.read_text().replace('"sensitivity"', '"sensitivity": 1, "x"'))
    config.write_text(config.read_text().replace('"epsilon": 10', '"epsilon": "ten"'))
    ended = command.run("promise", config)
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"error: {config}: mine.DPFilter: epsilon is 'ten'")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gated_audit.write_people(tmp_path_factory.mktemp("people"))


def test_an_audit_says_it_first_and_keeps_it(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ("--defense", FLIP, "--defense", "percentile-privacy")
    ended = gated_audit.audit(table, "smokes", out, *words)
    assert ended.returncode == 0, ended.stderr
    page = re.sub("`|</?code>", "", (out / "report.html").read_text())
    for text in (FLAGGED, NOT_PRIVATE):
        lines = [line for line in ended.stderr.splitlines() if text in line]
        assert len(lines) == 1
        assert lines[0].startswith("warning: ")
        assert text.replace("`", "") in page
    assert command.run("card", out, "--out", tmp_path).returncode == 0
    card = json.loads((tmp_path / "audit-card.json").read_text())
    assert FLAGGED in json.dumps(card)


def test_a_grid_says_it(table: Path, tmp_path: Path) -> None:
    cell = {
        "data": str(table), "label": "income", "secret": "smokes", "drop": ["coin"], "rounds": 1,
        "trials": 120, "batch_size": 4, "shadow": 100, "adversary": "energies",
        "defense": [FLIP],
    }  # fmt: skip
    (tmp_path / "grid.yaml").write_text(json.dumps({"name": "grid", "grids": [cell]}))
    ended = command.run("run", "grid.yaml", "--out", "grid", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count(FLAGGED) == 1
    page = re.sub("`|</?code>", "", (tmp_path / "grid" / "report.html").read_text())
    assert page.count(FLAGGED) == 1
    found = json.loads(
        command.run("run", "grid.yaml", "--out", "grid", "--json", cwd=tmp_path).stdout
    )
    assert [FLAGGED in text for text in found["warnings"] if "claims" in text] == [True]


@pytest.mark.slow
def test_a_federation_says_it(tmp_path: Path) -> None:
    bound.write_inputs(tmp_path)
    (tmp_path / "filters.json").write_text(json.dumps(CLIENT))
    words = ("--filters", "filters.json", "--ask", "membership", "--adversary", "loss")
    ended = command.run(
        "federation", "kept", "--task", "bound_task:build", *words, "--out", "run", cwd=tmp_path
    )
    assert ended.returncode == 0, ended.stderr
    page = re.sub("`|</?code>", "", (tmp_path / "run" / "report.html").read_text())
    exact = SparseRelease(bound.COLUMNS * 8 + 8 + 18, 0.1, 0.1, 0.1).follows(Neighbours(), 0)
    svt = f"epsilon 0.1, but its noise gives epsilon {large(exact.epsilon)} over one"
    for text in (
        f"SVTPrivacy in filters.json claims {svt}",
        "PercentilePrivacy in filters.json gives no differential privacy",
        "DPFilter in filters.json claims epsilon 10, but its noise gives epsilon 852 million",
    ):
        assert ended.stderr.replace("`", "").count(f"warning: {text}") == 1
        assert text in page


@pytest.mark.parametrize("name", questions())
def test_every_question_that_takes_a_defense_doubts_its_claim(name: str) -> None:
    spec = questions()[name].Spec
    if "defense" not in declared(spec):
        assert name in ("federation", "layers")  # kept updates; advice for single layers
        return
    assert FLAGGED in "".join(doubted_claims(make_spec(spec, {"defense": (FLIP,)})))
    assert doubted_claims(make_spec(spec, {})) == ()


def test_dpsgd_as_a_mechanism_is_judged_by_its_own_room() -> None:
    spec = questions()["guarantee"].Spec
    assert doubted_claims(make_spec(spec, {"mechanism": "dpsgd", "clip": 1.0, "noise": 1.0})) == ()
    assert FLAGGED in doubted_claims(make_spec(spec, {"mechanism": FLIP}))[0]
