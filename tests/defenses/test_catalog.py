"""Defenses by name: the package's own, registered ones, and those of a user's module."""

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch

import leakgauge
from leakgauge.core import registry
from leakgauge.core.checks import InputError
from leakgauge.defenses import (
    DPSGD,
    VIB,
    Clip,
    Defense,
    Noise,
    Perturb,
    Prune,
    Quantise,
    Sign,
    parse_defense,
)
from leakgauge.defenses.catalog import EXAMPLES, REGISTRY

MODULE = """
from dataclasses import dataclass

from leakgauge.defenses import Defense, Transform


@dataclass(frozen=True)
class Scaled(Transform):
    rate: float

    def __call__(self, grads, rngs):
        return {name: self.rate * leaf for name, leaf in grads.items()}


def build(rate: float = 0.25):
    return Defense("whatever", update=Scaled(rate))


def by_size(rate: float, *, batch_size: int):
    return Defense("by size", update=Scaled(rate / batch_size))


@dataclass(frozen=True)
class Halves:
    times: int = 1

    def build(self, *, batch_size: int):
        return build(0.5**self.times)


def number():
    return 3


def broken():
    return 1 / 0


def strange(table: dict):
    return table
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "scaled_defenses.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "scaled_defenses", raising=False)
    return "scaled_defenses"


def sent(defense: Defense) -> float:
    return float(defense.update({"w": torch.tensor([[8.0]])}, [])["w"])


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("build", 2.0),
        ("build:rate=0.5", 4.0),
        ("by_size:rate=0.5", 1.0),
        ("Halves", 4.0),
        (" Halves : times = 3", 1.0),
    ],
)
def test_a_module_of_the_user_s_own_makes_a_defense(module: str, words: str, wanted: float) -> None:
    text = f"{module}:{words}"
    defense = parse_defense(text, batch_size=4)
    assert sent(defense) == wanted
    assert defense.name == text  # so that it is found again from what a run keeps
    assert sent(parse_defense(defense.name, batch_size=4)) == wanted


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("built", "no function 'built' there; did you mean 'build'?"),
        ("build:rat=1", "has no setting 'rat'; did you mean 'rate'?"),
        ("build:rate=much", "rate is 'much'; expected a number"),
        ("by_size", "does not say 'rate'"),
        ("by_size:batch_size=3,rate=1", "has no setting 'batch_size'"),
        ("number", "made int; expected a leakgauge.defenses.Defense"),
        ("broken", "failed: ZeroDivisionError: division by zero"),
        ("strange", "needs 'table', which is neither a number nor a word; give it a default"),
    ],
)
def test_what_is_wrong_with_it_is_one_line(module: str, words: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_defense(f"{module}:{words}", batch_size=4)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_module_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="cannot import 'no_such_module' from the working folder"):
        parse_defense("no_such_module:build", batch_size=4)


def test_another_package_registers_its_own(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    points = {
        "quarter": EntryPoint("quarter", f"{module}:build", REGISTRY.group),
        "gone": EntryPoint("gone", "no_such_module:build", REGISTRY.group),
    }
    monkeypatch.setattr(sys, "path", [str(Path.cwd()), *sys.path])
    monkeypatch.setattr(registry, "registered", lambda group: points)
    assert sent(parse_defense("quarter:rate=0.5", batch_size=4)) == 4.0
    assert parse_defense("quarter", batch_size=4).name == "quarter"
    with pytest.raises(InputError, match="did you mean 'quarter'"):
        parse_defense("quartr", batch_size=4)
    with pytest.raises(InputError, match="'gone' is registered as 'no_such_module:build', which"):
        parse_defense("gone", batch_size=4)


@pytest.mark.parametrize(
    "settings",
    [
        Prune(0.9),
        Prune(whole=True),
        Sign(),
        Perturb(steps=7, pool=3, targeted=True),
        VIB(0.1),
        DPSGD(clip=1, noise=2),
        Clip(l2=2.0),
        Noise(std=0.5),
        Quantise(levels=3),
    ],
    ids=lambda one: one.name,
)
def test_the_name_of_settings_is_read_as_the_defense_they_build(settings) -> None:
    built = settings.build(batch_size=16)
    assert built.name == settings.name
    assert parse_defense(settings.name, batch_size=16) == built


def test_settings_are_checked_when_made() -> None:
    for make, message in (
        (lambda: Prune(rate=1.5), "pruning rate is 1.5"),
        (lambda: DPSGD(clip=-1), "clipping norm is -1"),
        (lambda: Perturb(pool=0), "pooling kernel"),
    ):
        with pytest.raises(InputError, match=message):
            make()


def test_every_example_of_the_help_is_a_defense() -> None:
    names = set()
    for text in EXAMPLES.replace(", ", "\n").splitlines():
        names.add(parse_defense(text, batch_size=16).name.partition(":")[0])
    assert names == set(REGISTRY.places) - {"none"}


@pytest.mark.parametrize("name", ["leakgauge.defenses.catalog", "leakgauge.core.registry"])
def test_the_catalog_loads_no_torch(name: str) -> None:
    """In a fresh process, without what ``leakgauge`` itself imports."""
    code = f"""
import sys, types
package = types.ModuleType("leakgauge")
package.__path__ = {list(leakgauge.__path__)!r}
sys.modules["leakgauge"] = package
import {name}
print([heavy for heavy in ("torch", "sklearn", "matplotlib") if heavy in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
