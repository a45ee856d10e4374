"""A sample of the matrix of clients and servers, next to the attack that knows everything."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

MATRIX = Path(__file__).parents[2] / "benchmarks" / "federation_matrix.py"


@pytest.fixture
def matrix(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark as a module, with one seed for each cell."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", [*sys.argv])
    pytest.importorskip("flwr", reason='needs pip install "leakgauge[flower]"')
    spec = importlib.util.spec_from_file_location("federation_matrix", MATRIX)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "federation_matrix", made)
    spec.loader.exec_module(made)
    monkeypatch.setattr(made, "SEEDS", 1)
    return made


def test_every_judgement_follows_from_the_figures(matrix: ModuleType) -> None:
    def judged(verdict: str, value: float, knows: float, auroc: float = 0.6, **more: Any) -> str:
        figures = {"value": value, "knows": knows, "chance": 11.0, "matched": {"value": 0.9}}
        rebuilt = {**figures, "verdict": verdict, **more}
        found: list[str] = matrix._judged([rebuilt], [{"value": auroc, "knows": 0.6}])
        return found[0]

    assert judged("Records recognisable", 19.5, 20.0) == "understood"
    assert judged("Not understood", 10.0, 20.0, assumed="plain SGD") == "assumed"
    assert judged("Records not rebuilt", 10.0, 20.0, assumed="plain SGD") == "WRONG"
    assert judged("Records recognisable", 19.5, 20.0, 0.7, assumed="plain SGD") == "assumed"
    assert judged("Not understood", 10.0, 20.0) == "UNSAID"
    assert judged("", 10.0, 20.0, refused="why") == "refused: why"


@pytest.mark.slow
@pytest.mark.usefixtures("data_folder")
@pytest.mark.parametrize(
    ("cell", "judgement"),
    [
        ("nesterov/FedAvg/float32/1", "understood"),
        ("sgd/FedProx/float32/4", "understood"),
        ("adam/FedAdam/float32/1", "understood"),
        ("sgd/FedAvg/float16/1", "understood"),
        ("sgd/Scaffold/float32/1", "assumed"),
    ],
)
def test_cells_are_understood_or_say_what_was_assumed(
    tmp_path: Path, matrix: ModuleType, cell: str, judgement: str
) -> None:
    assert f"| {judgement} |" in matrix.row(cell, tmp_path)
