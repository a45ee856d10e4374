"""The model-index of an audit, read back by Hugging Face's own library."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard, ModelCardData

from leakgauge.catalog import questions
from leakgauge.core.checks import InputError
from leakgauge.result import Result
from leakgauge.runs.page import read_audit, sections_of, write_page
from support.command import run
from support.made_runs import make_records
from support.many_runs import write_audit

pytestmark = pytest.mark.usefixtures("blank_charts")

URL = "https://example.org/audit"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    records = [*make_records(1.0), *make_records(0.5, defense="prune:rate=0.99")]
    made = write_audit(tmp_path_factory.mktemp("indexed") / "run", records)
    write_page(made, questions())
    return made


@pytest.fixture(scope="module")
def result(folder: Path) -> Result:
    audit = read_audit(folder)
    return Result(audit, sections_of(audit, questions()))


def card_with(index: str) -> Any:  # its figures may be None, for the type checker
    """Return the metadata of a model card, as the Hub's library reads it."""
    data = ModelCard(f"---\nlicense: mit\n{index}---\n# Planner\n").data
    assert isinstance(data, ModelCardData)
    return data


def test_the_library_reads_each_figure(result: Result) -> None:
    data = card_with(result.model_index('Planner: "é"', source_url=URL))
    assert data.model_name == 'Planner: "é"'
    found = {one.metric_name: one for one in data.eval_results}
    assert list(found) == [
        "leakgauge property audit: AUROC",
        "leakgauge property audit: AUROC under prune:rate=0.99, static adversary",
    ]
    known = {one.defense: one for one in result.measurements if one.metric == "auroc"}
    for one, figure in zip(found.values(), known.values(), strict=True):
        estimate = figure.estimate
        assert (one.metric_type, one.metric_value) == ("auroc", estimate.value)
        ends = (one.metric_args["low"], one.metric_args["high"], one.metric_args["n"])
        assert ends == (estimate.low, estimate.high, estimate.n)
        assert one.metric_args["without_leakage"] == 0.5
        assert (one.dataset_name, one.task_type, one.verified) == ("adult", "other", False)
        assert (one.source_url, one.source_name) == (URL, "leakgauge 0.2.0 audit")


def test_the_library_writes_the_same_again(result: Result) -> None:
    data = card_with(result.model_index("planner"))
    again = card_with(data.to_yaml().replace("license: mit\n", "") + "\n")
    assert again.eval_results == data.eval_results
    assert data.eval_results[0].source_url is None


def test_the_command_line_writes_it_beside_the_card(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "run")
    ended = run("card", tmp_path / "run", "--model-index", "planner")
    assert ended.returncode == 0, ended.stderr
    data = card_with((tmp_path / "run" / "model-index.yaml").read_text("utf-8"))
    card = json.loads((tmp_path / "run" / "audit-card.json").read_text("utf-8"))
    rows = [row for one in card["questions"] for row in one["results"] if row["leads"]]
    assert [one.metric_value for one in data.eval_results] == [
        row["figure"]["value"] for row in rows
    ]
    assert run("verify", tmp_path / "run" / "audit-card.json", tmp_path / "run").returncode == 0


def test_an_empty_name_is_refused(result: Result) -> None:
    with pytest.raises(InputError, match="the model's name is empty"):
        result.model_index(" ")
