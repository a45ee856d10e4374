"""The schema of grid files: valid, true of every file of ours, and as strict as the reader."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from leakgauge.catalog import questions
from leakgauge.core.checks import InputError
from leakgauge.runs.grid import unfold
from leakgauge.runs.grid_file import read_grid_file
from leakgauge.runs.schema import page, schema
from leakgauge.runs.spec import declared

ROOT = Path(__file__).parents[2]
FILES = sorted(ROOT.glob("experiments/**/*.yaml"))
CHECK = jsonschema.Draft202012Validator(schema(questions()))


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(CHECK.schema)
    assert json.loads(json.dumps(CHECK.schema)) == CHECK.schema


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_experiment_fits(file: Path) -> None:
    CHECK.validate(yaml.safe_load(file.read_text(encoding="utf-8")))


def one(**settings: Any) -> dict[str, Any]:
    return {"name": "g", "grids": [{"data": "t.csv", "label": "y", "secret": "s", **settings}]}


@pytest.mark.parametrize(
    "content",
    [
        one(),
        one(seed=[0, 1], drop="a", hidden=[[10], [20, 30]], bins={"age": 3}, lr=[0.1, 1]),
        one(adversary=["forest", ["forest", "energies"]], defense=["none", "sign"], stack=True),
        one(label=None, bins=[{"age": 3}, {"age": 4}]),
        {**one(), "sizes": {"small": {"rounds": 1}}, "about": "x"},
    ],
)
def test_what_both_accept(tmp_path: Path, content: dict[str, Any]) -> None:
    CHECK.validate(content)
    assert unfolded(tmp_path, content)


@pytest.mark.parametrize(
    "content",
    [
        {"grids": [{"data": "t.csv"}]},
        {"name": "a/b", "grids": [{"data": "t.csv"}]},
        {"name": "g", "grids": []},
        {"name": "g", "grids": [{"ask": "property"}]},
        {**one(), "other": 1},
        {**one(), "sizes": {"small": {"round": 1}}},
        {**one(), "paper": [{"where": {}, "value": "much"}]},
        {**one(), "paper": [{"where": {}, "value": 1.0, "metrik": "auroc"}]},
        one(round=1),
        one(rounds=0),
        one(rounds="2"),
        one(rounds=1.5),
        one(rounds=[]),
        one(lr=0),
        one(lr=True),
        one(lr=1e300),
        one(stack="yes"),
        one(prior="flat"),
        one(batches=["reuse", "old"]),
        one(hidden=[["a"]]),
        one(bins={"age": "three"}),
        one(ask="propertie"),
        one(ask="guarantee", rounds=3),
        one(seed=-1),
    ],
)
def test_what_both_refuse(tmp_path: Path, content: dict[str, Any]) -> None:
    assert not CHECK.is_valid(content)
    with pytest.raises(InputError):
        unfolded(tmp_path, content)


def unfolded(folder: Path, content: dict[str, Any]) -> Any:
    path = folder / "g.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return unfold(read_grid_file(path), questions())


def test_the_page_is_up_to_date_and_has_every_key() -> None:
    text = page(questions())
    assert (ROOT / "docs/grid-keys.md").read_text(encoding="utf-8") == text
    for question in questions().values():
        part = text.partition(f"## {question.title}\n")[2].partition("\n## ")[0]
        for name in declared(question.Spec):
            assert f"`{name}`" in part, name
