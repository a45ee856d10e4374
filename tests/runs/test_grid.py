"""A file of experiments: its cells, their keys, and refusals."""

import hashlib
import json
import math
from dataclasses import fields, replace
from itertools import product
from pathlib import Path

import pytest
import yaml

from leakgauge.catalog import questions
from leakgauge.core.checks import InputError
from leakgauge.inference.question import QUESTION
from leakgauge.inference.spec import InferenceSpec
from leakgauge.runs import cell as cell_module
from leakgauge.runs.cell import CellJob
from leakgauge.runs.grid import Grid, unfold
from leakgauge.runs.grid_file import read_grid_file
from leakgauge.runs.paper import PaperRow
from leakgauge.runs.spec import plain

CCS24 = Path(__file__).parents[2] / "experiments" / "ccs24"


def read_grid(path: Path, size: str | None = None) -> Grid:
    return unfold(read_grid_file(path), questions(), size=size)


def job(spec: InferenceSpec, name: str, fingerprint: str) -> CellJob:
    return CellJob(QUESTION, spec, name, fingerprint)


def cell(data: str = "t.csv", **settings: object) -> InferenceSpec:
    return InferenceSpec(data=data, **settings)


def written(folder: Path, content: object) -> Path:
    path = folder / "grid.yaml"
    path.write_text(
        content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False)
    )
    return path


def grid(folder: Path, *grids: dict, size: str | None = None, **more: object) -> Grid:
    content = {"name": "g", "grids": [{"data": "t.csv", **one} for one in grids], **more}
    return read_grid(written(folder, content), size)


def test_it_unfolds_to_the_product(tmp_path: Path) -> None:
    swept = {
        "ask": ["property", "attribute"],
        "batch_size": [1, 4],
        "defense": ["none", "sign", "prune:rate=0.5"],
        "adversary": ["forest", "energies"],
        "lr": [0.01, 0.1],
        "seed": [0, 1, 2],
    }
    found = grid(tmp_path, swept).cells
    expected = set(product(*swept.values()))
    assert {tuple(plain(one)[name] for name in swept) for one in found} == expected
    assert len(found) == len(expected)


def test_the_first_seed_of_all_comes_first_and_a_cell_comes_once(tmp_path: Path) -> None:
    found = grid(
        tmp_path, {"batch_size": [4, 8], "seed": [5, 3]}, {"batch_size": [8, 16], "seed": [5, 3]}
    )
    assert [(cell.seed, cell.batch_size) for cell in found.cells] == [
        (5, 4), (5, 8), (5, 16), (3, 4), (3, 8), (3, 16),
    ]  # fmt: skip
    assert [len(cells) for cells in found.grids] == [4, 4]


def test_lists_that_are_one_value(tmp_path: Path) -> None:
    one = grid(tmp_path, {"drop": ["a", "b"], "hidden": [32, 16], "bins": {"age": 4}}).cells
    assert [(cell.drop, cell.hidden, cell.bins) for cell in one] == [
        (("a", "b"), (32, 16), {"age": 4})
    ]
    several = grid(tmp_path, {"drop": [[], ["a"]], "hidden": [[32, 16], 8]}).cells
    assert [(cell.drop, cell.hidden) for cell in several] == [
        ((), (32, 16)), ((), (8,)), (("a",), (32, 16)), (("a",), (8,)),
    ]  # fmt: skip


def test_a_size_overrides_every_grid(tmp_path: Path) -> None:
    asked = ({"rounds": [1, 2, 3]}, {"batch_size": 8})
    sizes = {"paper": {"rounds": 10, "seed": [0, 1]}, "small": {"rounds": 2}}
    small = grid(tmp_path, *asked, sizes=sizes)
    assert (small.size, [(c.rounds, c.batch_size) for c in small.cells]) == (
        "small",
        [(2, None), (2, 8)],
    )
    paper = grid(tmp_path, *asked, sizes=sizes, size="paper")
    assert [(c.rounds, c.seed) for c in paper.cells] == [(10, 0), (10, 0), (10, 1), (10, 1)]
    assert grid(tmp_path, {}).size == ""


OTHER = {
    "data": "other.csv", "label": "l", "secret": "s", "group": "g", "drop": ("d",),
    "bins": {"age": 3}, "sep": ";", "encoding": "cp1252", "drop_missing": True,
    "merge_rare": 7, "decimal": ",", "sheet": "2", "missing": ("?",), "keep_na": True,
    "scale_binary": True, "allow_outside": True, "private": 999, "by_user": False,
    "ask": ("attribute",), "adversary": ("energies",),
    "task": "m:f", "defense": ("sign",), "batch_size": 17, "shadow": 999, "rounds": 9,
    "trials": 4999, "lr": 0.02, "optimizer": "adam", "loss": "mse",
    "batches": "fresh", "draw": "iid", "prior": "empirical", "ratio_bins": 5, "ratio_of": "v",
    "ratio_counts": "within", "candidates": 3, "private_users": 15, "shadow_users": 30,
    "stack": True,
    "hidden": (99,), "net": "slim", "allow_loop": True, "device": "cuda", "seed": 1,
    "seeds": 2,
}  # fmt: skip


@pytest.mark.parametrize("name", [one.name for one in fields(InferenceSpec)])
def test_the_key_changes_with_each_setting(name: str) -> None:
    first = cell()
    assert getattr(first, name) != OTHER[name]
    other = replace(first, **{name: OTHER[name]})
    # the path of the data does not matter, their name and content do
    keys = [job(one, one.data, "f").key for one in (first, other)]
    assert keys[0] != keys[1]
    assert job(first, "t.csv", "f").key == keys[0]


def test_the_key_changes_with_the_data_and_the_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    first = cell("/here/t.csv")
    key = job(first, "t.csv", "f").key
    assert job(replace(first, data="/there/t.csv"), "t.csv", "f").key == key
    assert job(first, "t.csv", "g").key != key
    monkeypatch.setattr(cell_module, "versions", lambda: {"torch": "0"})
    assert job(first, "t.csv", "f").key != key


def test_the_key_is_the_sha256_of_the_identity() -> None:
    first = job(cell(), "t.csv", "f")
    whole = {
        "settings": {**plain(first.spec), "data": "t.csv"},
        "fingerprint": "f",
        "versions": cell_module.versions(),
    }
    literal = json.dumps(whole, sort_keys=True).encode()
    assert first.key == hashlib.sha256(literal).hexdigest()


def refusal(folder: Path, content: object, size: str | None = None) -> str:
    with pytest.raises(InputError) as refused:
        read_grid(written(folder, content), size)
    text = str(refused.value)
    assert "\n" not in text
    return text


def one(**settings: object) -> dict:
    return {"name": "g", "grids": [{"data": "t.csv", **settings}]}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({**one(), "grid": []}, "unknown key 'grid'; did you mean 'grids'?"),
        (one(bach_size=4), "grid 1 has an unknown key 'bach_size'; did you mean 'batch_size'?"),
        ({**one(), "sizes": {"small": {"round": 2}}}, "did you mean 'rounds'?"),
        ({**one(), "paper": [{"were": {}, "value": 1}]}, "did you mean 'where'?"),
        ({**one(), "paper": [{"where": {"aks": "x"}, "value": 1}]}, "did you mean 'ask'?"),
        ({**one(), "paper": [{"where": {}}]}, "paper row 1: value is missing"),
        ({**one(), "paper": [{"where": {"ask": "user"}, "value": 1}]}, "about no cell"),
        (
            {**one(batch_size=[1, 2]), "paper": [{"where": {}, "value": 1}]},
            "differ in batch_size; add it to 'where'",
        ),
        ({**one(), "paper": [{"where": {}, "value": 1, "round": "all"}]}, "paper row 1: round"),
        ({**one(), "paper": [{"where": {}, "value": 1, "metric": "aurco"}]}, "metric is 'aurco'"),
        (
            {**one(), "paper": [{"where": {}, "value": 1, "knowledge": "adaptive"}]},
            "without a defense only static ones exist",
        ),
        (
            {**one(rounds=3), "paper": [{"where": {}, "value": 1, "round": 4}]},
            "paper row 1 is about round 4; its cells have rounds 1 to 3",
        ),
        ({**one(), "sizes": {"tiny": {"round": 2}}}, "size tiny has an unknown key 'round'"),
        (one(ask="user", prior="empirical"), "grid 1: prior is 'empirical'"),
        (one(batch_size="many"), "grid 1: batch_size is 'many'"),
        (one(batch_size=True), "batch_size is 'True'"),
        (one(batch_size=0), "grid 1: --batch-size is 0; expected a whole number of 1 or more"),
        (one(lr=True), "grid 1: lr is 'True'; expected a number"),
        (one(stack="yes"), "stack is 'yes'"),
        ({**one(), "paper": [{"where": {}, "value": math.nan}]}, "value is 'nan'"),
        (one(batch_size=[]), "batch_size is an empty list"),
        (one(defense="prun"), "did you mean 'prune'?"),
        (one(ask="propertie"), "did you mean 'property'?"),
        (one(adversary="forrest"), "did you mean 'forest'?"),
        (one(ask="property", adversary="encoder"), "supports 'property'; also name one of"),
        ({"name": "g", "grids": [{"ask": "property"}]}, "grid 1 names no data"),
        ({"name": "g", "grids": []}, "grids is '[]'"),
        ({"grids": [{"data": "t.csv"}]}, "name is missing"),
        ({**one(), "name": "a/b"}, "name is 'a/b'"),
        ({**one(), "name": "a/b"}, "pattern '^[A-Za-z0-9]"),
        ("name: [", "is not YAML"),
        ("[" * 5000, "nests too deeply"),
        ('name: g\ngrids: [{data: "\\ud800"}]', "is no text"),
        ("name: g\ngrids: [{data: t.csv, seed: 2024-13-45}]", "a value that cannot be read (month"),
        (f"name: g\ngrids: [{{data: t.csv, seed: {'9' * 5000}}}]", "a value that cannot be read"),
        (
            one(seed=list(range(99)), rounds=list(range(1, 99)), trials=list(range(50, 99))),
            "grid 1 has 475,398 cells; at most 10,000 can be run",
        ),
        ("name: g\nname: h\ngrids: [{data: t.csv}]", "key 'name' stands twice"),
        ("name: g\ngrids: [{data: t.csv, rounds: 1, rounds: 2}]", "key 'rounds' stands twice"),
        ("", "holds nothing"),
        ("- 1", "holds a list"),
    ],
)
def test_refusals_are_one_line(tmp_path: Path, content: object, says: str) -> None:
    assert says in refusal(tmp_path, content)


def test_sizes_that_are_not_there_are_refused(tmp_path: Path) -> None:
    assert "--size small" in refusal(tmp_path, one(), "small")
    sized = {**one(), "sizes": {"small": {}, "paper": {}}}
    assert "did you mean 'paper'?" in refusal(tmp_path, sized, "papers")
    with pytest.raises(InputError, match="no such file"):
        read_grid(tmp_path / "none.yaml")


def test_a_figure_is_about_the_cells_with_its_settings() -> None:
    row = PaperRow({"ask": "property", "batch_size": 4, "drop": ["a"]}, 0.9)
    first = cell(batch_size=4, drop=("a",))
    assert row.about(first)
    assert row.about(replace(first, seed=7))
    assert not row.about(replace(first, batch_size=5))
    assert not row.about(replace(first, drop=()))


def test_set_replaces_the_values_of_the_file(tmp_path: Path) -> None:
    file = read_grid_file(
        written(tmp_path, one(seed=0, defense=["none", "sign"], rounds=3, hidden=[8, 8]))
    )
    overrides = {
        "defense": "prune:rate=0.5,dpsgd:clip=2,noise=0.1", "seed": "0,1", "hidden": "32,16",
    }  # fmt: skip
    cells = unfold(file, questions(), overrides=overrides).cells
    assert [(one.seed, one.defense, one.rounds, one.hidden) for one in cells] == [
        (seed, (defense,), 3, (32, 16))
        for seed in (0, 1)
        for defense in ("prune:rate=0.5", "dpsgd:clip=2,noise=0.1")
    ]
    with pytest.raises(InputError, match="did you mean 'seed'"):
        unfold(file, questions(), overrides={"sed": "1"})


def test_only_keeps_the_cells_with_the_values(tmp_path: Path) -> None:
    file = read_grid_file(
        written(tmp_path, one(seed=[0, 1], defense=["none", "sign"], batch_size=[4, 8, 16]))
    )

    def kept(**only: str) -> list[tuple[object, ...]]:
        cells = unfold(file, questions(), only=only).cells
        return [(one.seed, one.defense, one.batch_size) for one in cells]

    assert kept(defense="sign", batch_size="4,16", seed="1") == [
        (1, ("sign",), 4),
        (1, ("sign",), 16),
    ]
    assert len(kept()) == 12
    with pytest.raises(InputError, match=r"--only batch_size is 5, which no .*4, 8, 16"):
        kept(batch_size="5")
    with pytest.raises(InputError, match="--only has an unknown key 'batch'"):
        kept(batch="4")


def test_a_cell_that_only_leaves_out_may_be_one_that_the_question_refuses() -> None:
    file = read_grid_file(CCS24.parent / "agic" / "table4.yaml")
    images = {"images": "1", "seed": "0"}  # one grid has batches of 4
    only = {"data": "cifar10", "batch_size": "1"}
    cells = unfold(file, questions(), size="paper", overrides=images, only=only).cells
    assert {(cell.images, cell.batch_size) for cell in cells} == {(1, 1)}
    with pytest.raises(InputError, match="expected a multiple of 4"):
        unfold(file, questions(), size="paper", overrides=images, only={"data": "cifar10"})


def test_a_row_of_the_paper_may_name_one_of_several_adversaries_of_a_cell() -> None:
    grid = read_grid(CCS24.parent / "nasr19" / "table4.yaml", "small")
    assert len(grid.cells) == 3  # a cell for each seed, with one trained model
    about = [[row.about(cell) for cell in grid.cells] for row in grid.paper]
    assert about == [[True] * 3] * 5
    assert not replace(grid.paper[0], where={"adversary": "loss"}).about(grid.cells[0])


def test_only_leaves_out_what_the_paper_says_of_other_cells() -> None:
    file = read_grid_file(CCS24 / "figure5.yaml")
    grid = unfold(file, questions(), size="paper", only={"defense": "sign:one_bit=1"})
    assert {row.where["defense"] for row in grid.paper} == {"sign:one_bit=1"}
    assert {cell.defense for cell in grid.cells} == {("sign:one_bit=1",)}


def test_only_refuses_values_that_no_cell_has_together(tmp_path: Path) -> None:
    file = read_grid_file(written(tmp_path, one(batch_size=4, seed=0)))
    other = {**file.grids[0], "batch_size": 8, "seed": 1}
    both = file.model_copy(update={"grids": [*file.grids, other]})
    with pytest.raises(InputError, match="no cell has all values of --only together"):
        unfold(both, questions(), only={"batch_size": "8", "seed": "0"})


@pytest.mark.parametrize("path", sorted(CCS24.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_papers_files_unfold_at_both_sizes(path: Path) -> None:
    small, paper = read_grid(path, "small"), read_grid(path, "paper")
    for cell in paper.cells:
        if not isinstance(cell, InferenceSpec):
            assert cell.trials == 5000
            continue
        (ask,) = cell.ask
        assert (cell.rounds, cell.trials) == (10, None)  # the games have the paper's trials
        if ask == "user":
            assert cell.candidates == 5
            continue
        assert cell.private == 5000
        assert cell.prior == ("uniform" if ask == "proportion" else "empirical")
    assert {cell.seed for cell in paper.cells} == set(range(5))
    assert max(cell.trials for cell in small.cells) <= 1000
    for row in paper.paper:
        assert any(row.about(cell) for cell in paper.cells)
        assert any(row.about(cell) for cell in small.cells)


def test_there_is_a_file_for_each_figure_and_the_table() -> None:
    names = {path.stem for path in CCS24.glob("*.yaml")}
    assert names == {*(f"figure{i}" for i in range(2, 9)), "section5", "table2", "whole"}
