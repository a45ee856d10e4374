"""Check the example notebooks: form, no outputs, only public names; the slow test runs them."""

import ast
import importlib
import importlib.util
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

import leakgauge

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
RUNNERS = ("nbclient", "nbformat", "ipykernel")
QUESTIONS = {"inference", "guarantee", "membership", "reconstruction", "layers", "timeline"}

each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def notebook(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def code_cells(path: Path) -> list[dict[str, Any]]:
    return [one for one in notebook(path)["cells"] if one["cell_type"] == "code"]


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def imported(code: str) -> list[tuple[str, str | None]]:
    """Return the modules of leakgauge that code imports, each with the imported name."""
    found: list[tuple[str, str | None]] = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found += [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [(str(node.module), alias.name) for alias in node.names]
    return [one for one in found if one[0].split(".")[0] == "leakgauge"]


def is_public(module: str, name: str | None) -> bool:
    """Return whether a package has the name in ``__all__``; without a name, whether it has one."""
    if module.count(".") > 1:  # a file inside a package
        return False
    names = getattr(importlib.import_module(module), "__all__", None)
    return names is not None and (name is None or name in names)


def test_every_question_has_a_notebook_and_a_row() -> None:
    names = {path.stem for path in NOTEBOOKS}
    assert names == QUESTIONS
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(\w+)\.ipynb\]\(\1\.ipynb\) \|", page, re.MULTILINE)
    assert sorted(rows) == sorted(names)


@each
def test_a_notebook_has_the_form_of_one(path: Path) -> None:
    """Check the rules of nbformat 4.5, which is not a dependency of the tests."""
    whole = notebook(path)
    assert (whole["nbformat"], whole["nbformat_minor"]) == (4, 5)
    assert whole["metadata"]["kernelspec"]["name"] == "python3"
    ids = [cell["id"] for cell in whole["cells"]]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[\w-]{1,64}", one) for one in ids)
    needed = {"code": {"outputs", "execution_count"}, "markdown": set()}
    for cell in whole["cells"]:
        assert {"cell_type", "id", "metadata", "source", *needed[cell["cell_type"]]} == set(cell)
    if importlib.util.find_spec("nbformat") is not None:
        importlib.import_module("nbformat").validate(whole)


@each
def test_a_notebook_begins_with_a_title(path: Path) -> None:
    first = notebook(path)["cells"][0]
    assert first["cell_type"] == "markdown"
    assert re.match(r"# \S.*\?\n", source(first))  # a question


@each
def test_no_output_is_stored(path: Path) -> None:
    cells = code_cells(path)
    assert [cell["id"] for cell in cells if cell["outputs"] or cell["execution_count"]] == []


@each
def test_code_compiles_and_imports_public_names(path: Path) -> None:
    cells = [source(cell) for cell in code_cells(path)]
    for code in cells:
        compile(code, path.name, "exec")
    used = [one for code in cells for one in imported(code)]
    assert used
    assert [one for one in used if not is_public(*one)] == []
    top = {name for code in cells for name in re.findall(r"\blg\.(\w+)", code)}
    assert top <= set(leakgauge.__all__)


def test_private_places_are_not_public_names() -> None:
    assert imported("from leakgauge.inversion.spec import InversionSpec\nimport numpy") == [
        ("leakgauge.inversion.spec", "InversionSpec")
    ]
    assert not is_public("leakgauge.inversion.spec", "InversionSpec")
    assert not is_public("leakgauge.inversion", "InversionSpec")
    assert is_public("leakgauge.inversion", "preset")
    assert is_public("leakgauge", None)


@pytest.mark.slow
@pytest.mark.process
@each
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run it without additional data; there are no errors or warnings."""
    missing = [name for name in RUNNERS if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed; the extra 'docs' has them")
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.delenv("LEAKGAUGE_DATA", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    paths = [str(Path(leakgauge.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    whole = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(whole, timeout=600, kernel_name="python3", resources=resources).execute()
    outputs = [one for cell in whole.cells for one in cell.get("outputs", ())]
    assert [one.text for one in outputs if one.get("name") == "stderr"] == []
    assert any("image/png" in one.get("data", {}) for one in outputs)
    assert list(tmp_path.iterdir()) == []
