"""The schema of grid files accepts what ``leakgauge run`` accepts; its page is up to date."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from leakgauge.catalog import questions
from leakgauge.core.checks import InputError
from leakgauge.defenses.catalog import parse_defense
from leakgauge.inference.catalog import parse_adversary
from leakgauge.inversion.methods import method_of
from leakgauge.runs.grid import unfold
from leakgauge.runs.grid_file import GridFile, read_grid_file
from leakgauge.runs.keys_page import keys_page
from leakgauge.runs.schema import grid_schema
from leakgauge.runs.spec import check_bounds, declared
from support import command

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "grid-keys.md"
EXPERIMENTS = sorted((ROOT / "experiments").rglob("*.yaml"))
ASKS = {name: next(iter(question.asks)) for name, question in questions().items()}

VALUES = [
    None, True, 0, 1, 2, -1, 7, 2000, 0.5, -0.5, 1e30, "text", "0.5", "-1e-4", "", " 1 ",
    [], {}, [1], [2, 3], [None], [True], ["text"], [[]], [[1, 2], 3], [["a", "b"], ["c"]],
    [[1], ["a"]], ["a", 1], ["a", ["b"]], ["a", None], {"age": 4}, {"age": "4"}, {"age": 0.5},
    {4: 4}, [{"age": 4}, {}], [{"age": 4}, 1], [0.5, 0.25], [0.5, "x"], [True, False], [[True]],
]  # fmt: skip
"""Values of every type, alone and in lists, without 2.0, which equals 2 in JSON Schema."""


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    schema = grid_schema(questions())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.fixture
def bounds_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out bounds between settings, which a schema cannot express."""
    for question in questions().values():
        monkeypatch.setattr(type(question), "check", lambda _, spec: check_bounds(spec))


def refusal(content: Any) -> str:
    """Return why ``leakgauge run`` refuses a file; empty if it accepts it."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "grid.yaml"
        file.write_text(yaml.safe_dump(content), encoding="utf-8")
        try:
            unfold(read_grid_file(file), questions())
        except InputError as error:
            return str(error)
    return ""


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_every_experiment_is_valid(path: Path, validator: jsonschema.Draft202012Validator) -> None:
    validator.validate(yaml.safe_load(path.read_text(encoding="utf-8")))


def cases(name: str) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    question = questions()[name]
    for key, one in declared(question.Spec).items():
        if one.setting.notation is None:
            words = [*(one.setting.choices or ()), [*(one.setting.choices or ())]]
            for value in [*VALUES, *words]:
                grid = {"data": "randhie", "ask": ASKS[name], key: value}
                yield key, value, {"name": "x", "grids": [grid]}


@pytest.mark.usefixtures("bounds_alone")
@pytest.mark.parametrize("name", questions())
def test_the_schema_takes_what_run_takes(
    name: str, validator: jsonschema.Draft202012Validator
) -> None:
    """Types, bounds, choices and lists agree in both directions, for every key and value.

    The schema of a question's settings takes a fraction of the time; the whole one is asked, too.
    """
    alone = grid_schema({name: questions()[name]})
    of_files = jsonschema.Draft202012Validator(alone)
    of_grids = of_files.evolve(schema={"$ref": f"#/$defs/{name}", "$defs": alone["$defs"]})
    seen = {True: 0, False: 0}
    for number, (key, value, content) in enumerate(cases(name)):
        try:
            unfold(GridFile.model_validate(content), questions())
            taken = True
        except InputError:
            taken = False
        is_file = key == "ask"  # files check it, and choose the settings by it
        valid = of_files.is_valid(content) if is_file else of_grids.is_valid(content["grids"][0])
        assert valid == taken, (key, value)
        if number % 10 == 0:
            assert validator.is_valid(content) == taken, (key, value)
        seen[taken] += 1
    assert min(seen.values()) > 100


GRID = {"data": "randhie"}
WRONG: list[Any] = [
    None,
    [],
    {},
    {"name": "x"},
    {"grids": [GRID]},
    {"name": "a b", "grids": [GRID]},
    {"name": 1, "grids": [GRID]},
    {"name": "x", "grids": []},
    {"name": "x", "grids": GRID},
    {"name": "x", "grids": [[]]},
    {"name": "x", "grids": [None]},
    {"name": "x", "grids": [{"rounds": 1}]},
    {"name": "x", "grids": [GRID], "size": {}},
    {"name": "x", "grids": [GRID], "about": None},
    {"name": "x", "grids": [GRID], "sizes": None},
    {"name": "x", "grids": [GRID], "sizes": {"small": None}},
    {"name": "x", "grids": [GRID], "sizes": {"small": {"round": 1}}},
    {"name": "x", "grids": [GRID], "sizes": {"small": {"rounds": "1"}}},
    {"name": "x", "grids": [GRID], "sizes": {1: {"rounds": 1}}},
    {"name": "x", "grids": [{**GRID, "epochs": 2}]},
    {"name": "x", "grids": [{**GRID, "ask": "guarantee", "shadow": 2}]},
    {"name": "x", "grids": [{**GRID, "ask": "user", "images": 2}]},
    {"name": "x", "grids": [{**GRID, "ask": "propety"}]},
    {"name": "x", "grids": [{**GRID, "ask": []}]},
    {"name": "x", "grids": [{**GRID, "ask": None}]},
    {"name": "x", "grids": [{**GRID, "ask": ["property", "guarantee"]}]},
    {"name": "x", "grids": [{**GRID, "ask": "guarantee"}, {**GRID, "ask": "reconstruction"}]},
    {"name": "x", "grids": [GRID, {**GRID, "ask": "guarantee"}]},
    {"name": "x", "grids": [{"rounds": 1}], "sizes": {"a": GRID, "b": {"seed": 1}}},
    {"name": "x", "grids": [GRID], "paper": [{}]},
    {"name": "x", "grids": [GRID], "paper": [{"where": {}}]},
    {"name": "x", "grids": [GRID], "paper": [{"where": {}, "value": "much"}]},
    {"name": "x", "grids": [GRID], "paper": [{"where": {"images": 8}, "value": 0.5}]},
    {"name": "x", "grids": [GRID], "paper": [{"where": {}, "value": 0.5, "metric": "psnr"}]},
    {"name": "x", "grids": [GRID], "paper": [{"where": {}, "value": 0.5, "round": "last"}]},
    {"name": "x", "grids": [GRID], "paper": [{"where": {}, "value": True}]},
    {"name": "x", "grids": [GRID], "paper": [{"where": {}, "value": 0.5, "page": 3}]},
]
RIGHT: list[Any] = [
    {"name": "x", "grids": [GRID]},
    {"name": "x", "grids": [{"rounds": 1}], "sizes": {"a": GRID, "b": {**GRID, "seed": 1}}},
    {"name": "x", "grids": [{**GRID, "ask": ["property", "user"]}]},
    {"name": "x", "grids": [{**GRID, "ask": "guarantee", "attribute": "female"}]},
    {"name": "x", "grids": [{**GRID, "lr": "1e-4"}], "sizes": {}},
    {"name": "x", "grids": [GRID], "paper": [{"where": {}, "value": 0.5, "round": 2}]},
]


@pytest.mark.parametrize("content", WRONG, ids=lambda content: json.dumps(content)[:70])
def test_a_wrong_file_is_refused_by_both(
    content: Any, validator: jsonschema.Draft202012Validator
) -> None:
    assert refusal(content)
    assert not validator.is_valid(content)


@pytest.mark.parametrize("content", RIGHT, ids=lambda content: json.dumps(content)[:70])
def test_a_right_file_is_taken_by_both(
    content: Any, validator: jsonschema.Draft202012Validator
) -> None:
    assert not refusal(content)
    validator.validate(content)


TEXTS = [
    "none", " sign ", "prune", "prune:rate=0.9", "prune: rate = 0.9 , whole=1", "prune:rate=1e-3",
    "prune:rate=.5,rate=", "prune:rat=0.9", "prune:rate=x", "prune:whole=yes", "prune:", "prun",
    "sign:a=1", "clip", "clip:l2=1", "quantise:levels=4", "quantise:levels=4.5",
    "sign:layers=0+body.conv1+last", "prune:rate=0.9,layers=first", "dpsgd:layers=first",
    "dpsgd:clip=2,noise=0.1", "dpsgd:clip=2;noise=0.1", "", "panel", "panel:a=1", "forest",
    "forest:kernel=10", "forest:kernal=10", "discriminant:ridge=0.1", "agic:function=linear",
    "agic:betta=2", "dlg:beta=2", "dlg:lr=0.5,restarts=2", "leakgauge", "exact",
    "exact:a=1",
]  # fmt: skip


def parsed(kind: str, text: str) -> bool:
    """Return whether the parser of a setting accepts a text."""
    try:
        if kind == "defense":
            parse_defense(text, batch_size=16)
        elif kind == "adversary":
            text == "panel" or parse_adversary(text)
        else:
            method_of(text)
    except InputError:
        return False
    return True


@pytest.mark.parametrize(
    ("question", "key"),
    [("inference", "defense"), ("inference", "adversary"), ("reconstruction", "method")],
)
def test_names_with_settings_fit_where_the_parser_takes_them(
    question: str, key: str, validator: jsonschema.Draft202012Validator
) -> None:
    for text in TEXTS:
        grid = {**GRID, "ask": ASKS[question], key: text}
        valid = validator.is_valid({"name": "x", "grids": [grid]})
        assert valid == parsed(key, text), text


def test_own_code_is_taken(validator: jsonschema.Draft202012Validator) -> None:
    for text in ("my_module:build", "my.module:Mine:rate=0.5"):
        grid = {**GRID, "defense": text, "adversary": [text, "forest"]}
        validator.validate({"name": "x", "grids": [grid]})


def test_the_command_prints_the_schema() -> None:
    ended = command.run("schema")
    assert (ended.returncode, json.loads(ended.stdout)) == (0, grid_schema(questions()))


def test_the_page_is_up_to_date() -> None:
    """Run ``leakgauge schema --markdown > docs/reference/grid-keys.md`` to make it."""
    assert PAGE.read_text(encoding="utf-8") == command.run("schema", "--markdown").stdout


def test_the_page_has_every_key() -> None:
    page = keys_page(questions())
    for question in questions().values():
        for one in declared(question.Spec).values():
            assert f"| `{one.name}` |" in page or one.name == "ask"
            assert one.setting.help in page or one.name == "ask"


def test_the_pages_example_is_right(validator: jsonschema.Draft202012Validator) -> None:
    example = keys_page(questions()).split("```yaml\n")[1].split("```")[0]
    validator.validate(yaml.safe_load(example))
    assert not refusal(yaml.safe_load(example))
