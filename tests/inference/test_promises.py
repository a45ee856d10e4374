"""What is shown of bounds and epsilon, of stacked rounds, and of new games."""

import dataclasses
import html
import json
import math
from pathlib import Path
from typing import Any

import pytest

from leakgauge.inference.report.plain import information_lines, promise_lines, to_json
from leakgauge.inference.report.titles import adversary_tests
from leakgauge.inference.report.verdict import verdicts
from leakgauge.results.measurements import (
    ACCUMULATED,
    STACKED,
    Measurement,
    Run,
)
from leakgauge.runs.question import Answer
from leakgauge.runs.store import Store
from support.made_runs import (
    HOSTILE,
    make_records,
    make_run,
    promised_run,
    render,
    said,
    section,
    stacked,
    visible,
)

pytestmark = pytest.mark.usefixtures("blank_charts")

LOUD, QUIET, SILENT = "dpsgd:clip=2,noise=0.1", "dpsgd:clip=1,noise=40", "dpsgd:clip=2,noise=0"


def words(page: str, name: str) -> str:
    return " ".join(visible(section(page, name)).split())


def noisy(name: str = LOUD, **more: Any) -> list[Measurement]:
    return make_records(1.1, 0.02, defense=name, knowledge="adaptive", **more)


def one_cell(run: Run, records: list[Measurement]) -> dict[str, Any]:
    found: dict[str, Any] = to_json(Answer(run, records), Path())["cells"][0]
    json.dumps(found, allow_nan=False)
    return found


def binary_divergence(success: float, guess: float) -> float:
    """What Fano's inequality asks for, written as a plain sum."""
    return success * math.log(success / guess) + (1 - success) * math.log(
        (1 - success) / (1 - guess)
    )


# --- JSON and terminal ----------------------------------------------------------------------------


def test_json_has_bounds_and_epsilon_of_a_cell_under_dp() -> None:
    run, records = promised_run(LOUD), noisy()
    found = one_cell(run, records)
    assert found["epsilon"] == run.guarantees["property"][LOUD]["epsilon"]
    assert found["bounds"]["certificate"] == run.guarantees["property"][LOUD]["channel"]
    assert found["bounds"]["certificate"]["vacuous"]
    assert "vacuous" in found["bounds"]["text"]
    success = found["accumulated"]["success"]
    for end in ("value", "low", "high"):
        assert found["bounds"]["information_nats"][end] == pytest.approx(
            binary_divergence(success[end], 0.5)
        )
    nats = binary_divergence(success["low"], 0.5)
    assert f"at least {nats:.3g} nats ({nats / math.log(2):.3g} bits)" in found["bounds"]["text"]
    assert "not a certificate" in found["bounds"]["text"]


def test_json_without_dp_has_no_epsilon_and_no_certificate() -> None:
    found = one_cell(promised_run(LOUD), make_records(1.1))
    assert "epsilon" not in found
    assert found["bounds"]["certificate"] is None
    assert "may carry any amount of information" in found["bounds"]["text"]
    old = one_cell(make_run(), make_records(1.1))  # a run that knows nothing of guarantees
    assert old["bounds"]["certificate"] is None
    assert old["bounds"]["information_nats"]["value"] > 0


def test_a_success_not_above_guessing_implies_nothing() -> None:
    found = one_cell(make_run(), make_records(0.2, 0.05))["bounds"]
    assert found["information_nats"]["low"] == 0
    assert found["information_nats"]["high"] > 0
    assert "implies nothing" in found["text"]


def test_implied_information_takes_the_guess_of_an_uneven_prior() -> None:
    records = [
        dataclasses.replace(r, chance=0.68) if r.metric == "success" else r
        for r in make_records(2.0)
    ]
    found = one_cell(make_run(), records)
    assert found["bounds"]["information_nats"]["value"] == pytest.approx(
        binary_divergence(found["accumulated"]["success"]["value"], 0.68)
    )


def test_a_cell_without_success_has_no_information() -> None:
    records = [r for r in make_records(1.1) if r.metric == "auroc"]
    assert one_cell(make_run(), records)["bounds"]["information_nats"] is None


def test_json_has_stacked_figures_where_there_are_any() -> None:
    assert "stacked" not in one_cell(make_run(), make_records())
    found = one_cell(make_run(), stacked(make_records()))
    for metric, figure in found["accumulated"].items():
        assert found["stacked"][metric]["value"] == figure["low"]
    assert len(found["rounds"]) == 5


def test_terminal_tells_promises_and_what_success_implies() -> None:
    run = promised_run(LOUD, QUIET, SILENT)
    loud, quiet, silent, note = promise_lines(run)
    assert loud.startswith(f"{LOUD} promises, property inference: epsilon of one step 24.2 (not")
    assert "vacuous" in loud
    assert "advantage at most" in quiet
    assert "not valid" not in quiet
    assert "epsilon is infinite" in silent
    assert "certifies nothing about a property" in note
    assert promise_lines(make_run()) == []
    line, caution = information_lines(run, adversary_tests(noisy()))
    assert "implies at least" in line
    assert "not a certificate" in caution


def test_guarantees_are_kept_with_the_cell(tmp_path: Path) -> None:
    run, store = promised_run(LOUD, QUIET, SILENT), Store(tmp_path)
    store.keep("inference", {"seed": 0}, Answer(run, noisy()))
    assert store.read("inference")[1].run.guarantees == run.guarantees


# --- the page -------------------------------------------------------------------------------------


def test_page_shows_what_a_defense_promises() -> None:
    run = promised_run(LOUD, QUIET, SILENT)
    text = words(render(run, noisy()), "promises")
    step = run.guarantees["property"][LOUD]["epsilon"]
    for shown in (
        f"{LOUD} 24.2 (not valid above 1) {step['step_exact']:.1f}",
        "Epsilon is a guarantee for a single record",
        "certifies nothing about a property that the records of a batch share",
        f"{SILENT} infinite infinite infinite infinite",
        "Poisson sampling",
        "the last batch of a round has 5 records",
        "holds for every adversary",
        "Vacuous: more information may get through than the secret holds",
        "The paper's bound: its Eq. 7 divides by log(m - 1), which is 0 for 2 values",
    ):
        assert shown in text, shown
    quiet = run.guarantees["property"][QUIET]["channel"]
    assert f"advantage at most {quiet['advantage_bound']:.3f}, success at most" in text
    assert "is a lower bound on the information, not a certificate" in text


def test_page_tells_when_the_accountant_is_missing() -> None:
    run = promised_run(LOUD)
    run.guarantees["property"][LOUD]["epsilon"]["run"] |= {
        "value": None,
        "note": "dp-accounting is not installed: pip install it",
    }
    text = words(render(run, noisy()), "promises")
    assert "not computed" in text
    assert "dp-accounting is not installed" in text


def test_page_without_promises_tells_what_success_implies() -> None:
    page = render(promised_run("sign"), make_records(1.1, 0.02))
    assert 'id="inference-promises"' not in page
    assert "#inference-promises" not in page
    rate = next(
        r for r in make_records(1.1, 0.02) if r.metric == "success" and r.round == "accumulated"
    )
    nats = binary_divergence(rate.estimate.value, 0.5)
    assert f"{nats:.3g}" in words(page, "figures")
    assert "not a certificate" in words(page, "figures")


def test_hostile_promises_are_escaped() -> None:
    run = promised_run(LOUD)
    guarantee = run.guarantees["property"][LOUD]
    guarantee["epsilon"]["note"] = guarantee["channel"]["text"] = HOSTILE
    guarantee["channel"]["vacuous"] = False
    page = render(dataclasses.replace(run, guarantees={HOSTILE: {HOSTILE: guarantee}}), noisy())
    assert "<script" not in page
    assert html.escape(HOSTILE, quote=False).split("`")[0] in section(page, "promises")


def test_stacked_is_shown_with_accumulated() -> None:
    page = render(make_run(), stacked(make_records(1.1, 0.02)))
    text = words(page, "figures").split("Every round, every figure")
    assert "Stacked weights the rounds before it adds them" in text[0]
    low = next(r for r in make_records(1.1, 0.02) if r.round == ACCUMULATED).estimate.low
    assert all(f"Stacked {low:.3f}" in part for part in text)  # in both tables
    assert "Stacked" not in visible(render(make_run(), make_records(1.1, 0.02)))
    judged = [
        [(one.title, one.text, one.auroc) for one in verdicts(make_run(), each)]
        for each in (stacked(make_records(1.1, 0.02)), make_records(1.1, 0.02))
    ]
    assert judged[0] == judged[1]


def test_stacked_records_may_come_first_or_alone() -> None:
    records = stacked(make_records(1.1, 0.02))
    (cell,) = adversary_tests(sorted(records, key=lambda r: r.round != STACKED))
    assert cell.rounds == [1, 2, 3, 4, 5]
    assert cell.whole("auroc") == next(r for r in records if r.round == ACCUMULATED)
    assert cell.has(STACKED)
    alone = [r for r in records if r.round in (STACKED, 1, 2)]
    assert "0.7" in words(render(make_run(), alone), "figures")


# --- games ----------------------------------------------------------------------------------------

RANGES = ["Male: none", "Male: up to 50 %", "Male: more"]


def test_proportion_is_worded() -> None:
    run = make_run(data={"games": {"proportion": {"values": RANGES}}})
    records = make_records(1.5, game="proportion")
    text = said(records, run)[1]
    assert "infers the share of `sex` in a batch" in text
    assert "with the share in a given range and one in another range" in text
    assert "each range against the rest" in text
    assert (
        "finds no leakage of the share of `sex`"
        in said(make_records(0, 0.1, game="proportion"), run)[1]
    )
    page = render(run, records)
    for name in RANGES:
        assert name in words(page, "verdict")
    assert "all records of a batch have the same value" not in words(page, "verdict")
    assert "Games" not in words(page, "data")


def test_user_is_worded() -> None:
    run = make_run(
        settings={"ask": ["user"], "adversary": ["encoder"]},
        data={"games": {"user": {"values": ["1", "2", "3"]}}},
    )
    records = make_records(1.5, game="user", adversary="encoder", secret="actor")
    assert "infers the user (`actor`) whose records a batch holds" in said(records, run)[1]
    page = render(run, records)
    assert "among 3 candidates" in words(page, "verdict")
    assert "a batch of each candidate's other records" in words(page, "adversary")
    assert "except what single adversaries know" in words(page, "adversary")
    assert "phi(x)" not in words(page, "adversary")


def test_new_games_need_no_description() -> None:
    for game in ("proportion", "user"):
        assert said(make_records(1.5, game=game), Run("audit", {}, {}))[0] == "clear"
        assert "inference" in visible(render(Run("audit", {}, {}), make_records(1.5, game=game)))


def test_matching_knows_the_other_features() -> None:
    run = make_run(settings={"adversary": ["forest", "matching"]})
    text = words(render(run, make_records(1.5, game="attribute")), "adversary")
    assert "all other features and the labels of the private batch" in text
    plain = words(render(make_run(), make_records(1.5, game="attribute")), "adversary")
    assert "phi(x)" not in plain
    assert "except what single" not in plain


def test_games_of_one_run_keep_their_own_rules() -> None:
    records = [*make_records(1.5), *make_records(1.5, game="user", secret="actor")]
    text = words(render(make_run(), records), "verdict")
    assert "In each trial of property inference all records of a batch have the same" in text
    assert "names the user ( actor ) whose records a batch holds" in text
