"""Adversaries by name: the package's own with settings, registered ones, and a user's own."""

import subprocess
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
import torch

import leakgauge
from leakgauge.core import registry
from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.core.types import Task
from leakgauge.data import split_records
from leakgauge.gradients import params_of
from leakgauge.inference import (
    Discriminant,
    Encoder,
    Energies,
    Forest,
    Joint,
    Logistic,
    Matching,
    PcaEncoder,
    PcaForest,
    Plda,
    parse_adversary,
)
from leakgauge.inference.adversaries.views import MaxPool
from leakgauge.inference.catalog import ADVERSARIES, GAMES, REGISTRY, adversaries_for, games_of
from leakgauge.inference.checking import attacks_for, check
from leakgauge.inference.run import audit, make_stage
from leakgauge.inference.spec import InferenceSpec
from support.synthetic import bench, records, small_stage, small_task

MODULE = '''
from dataclasses import dataclass

import numpy as np

from leakgauge.inference.adversaries.adversary import CandidateAttack


@dataclass(frozen=True)
class FirstCoordinate:
    """Compares the first weight's gradient with its means over shadow batches of each secret."""

    batches: int = 400
    sharpness: float = 1.0

    def fit(self, shadow, log_prior, *, rng):
        rows, secret = shadow.draw(self.batches, rng=rng)
        seen = np.concatenate([first(grads) for grads in shadow.gradients(rows)])
        means = np.array([seen[secret == value].mean() for value in range(shadow.values)])
        return Fitted(self, means, seen.std(), log_prior)


@dataclass(frozen=True, eq=False)
class Fitted:
    settings: object
    means: object
    spread: float
    log_prior: object

    @property
    def details(self):
        return repr(self.settings)

    def log_posterior(self, seen):
        apart = (first(seen)[:, None] - self.means) / self.spread
        log = self.log_prior - self.settings.sharpness * apart**2 / 2
        return log - np.logaddexp.reduce(log, axis=1, keepdims=True)


def first(grads):
    leaf = next(iter(grads.values()))
    return leaf.flatten(1)[:, :2].sum(dim=1).double().cpu().numpy()


class OfUsers(CandidateAttack):
    name = "of users"

    def fit(self, shadow, log_prior, *, rng):
        raise NotImplementedError


@dataclass(frozen=True)
class OfAttributes(FirstCoordinate):
    games = ("attribute",)


@dataclass(frozen=True)
class OfNothing(FirstCoordinate):
    games = ("atribute",)


def number():
    return 3
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_attacks.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "own_attacks", raising=False)
    return "own_attacks"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("forest:kernel=10", Forest(kernel=10)),
        ("forest:kernel=10,trees=7", Forest(kernel=10, trees=7)),
        ("pca-forest:components=50", PcaForest(components=50)),
        ("discriminant:ridge=0.1", Discriminant(ridge=0.1)),
        ("forest", Forest()),
        ("logistic:batches=300", Logistic(batches=300)),
        ("energies:batches=300", Energies(batches=300)),
        ("joint:batches=300", Joint(batches=300)),
        ("matching:batches=50", Matching(batches=50)),
        ("encoder:kernel=3,codes=100", Encoder(kernel=3, codes=100)),
        ("encoder:scaled=1", Encoder(scaled=True)),
        ("pca-encoder:components=50", PcaEncoder(components=50)),
        ("plda:ridge=0.1", Plda(ridge=0.1)),
    ],
)
def test_settings_change_the_fields_of_the_attack(text: str, wanted) -> None:
    attack = parse_adversary(text)
    assert attack == wanted
    assert repr(attack) == repr(wanted)
    assert attack.name == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("forst", "adversary 'forst' is not known; did you mean 'forest'?"),
        ("forest:kernl=3", "has no setting 'kernl'; did you mean 'kernel'?"),
        ("forest:kernel=3.5", "kernel is '3.5'; expected a whole number"),
        ("forest:kernel=0", "pooling kernel is 0; expected a number above 0"),
        ("discriminant:assume=none", "has no setting 'assume'"),
    ],
)
def test_what_is_not_known_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_adversary(text)
    assert message in str(caught.value)


def test_settings_of_the_paper() -> None:
    """Sections 5.1.3 and 6.2 of Li et al."""
    forest, components = parse_adversary("forest"), parse_adversary("pca-forest").components
    assert (forest.trees, components) == (50, 50)
    table, faces = torch.zeros(4, 14), torch.zeros(4, 3, 32, 32)
    assert [forest.for_records(x).view for x in (table, faces)] == [MaxPool(3), MaxPool(10)]
    named = parse_adversary("forest:kernel=7").for_records(faces)
    assert (named.view, named.name) == (MaxPool(7), "forest:kernel=7")
    thin = parse_adversary("forest:trees=5").for_records(faces)
    assert (thin.view, thin.trees, thin.name) == (MaxPool(10), 5, "forest:trees=5")


def test_windows_reach_across_parameters_on_request() -> None:
    """PyTorch's pooling of the whole vector."""
    rng = torch.Generator().manual_seed(0)
    grads = {"w": torch.randn(4, 5, 2, generator=rng), "b": torch.randn(4, 3, generator=rng)}
    vector = torch.cat([leaf.flatten(1) for leaf in grads.values()], dim=1)
    view = parse_adversary("forest:whole=1,kernel=4").view
    wanted = torch.nn.functional.max_pool1d(vector[:, None], 4, ceil_mode=True)[:, 0]
    assert torch.equal(view(grads), wanted)
    assert not torch.equal(MaxPool(4)(grads), wanted)
    assert parse_adversary("forest").view == MaxPool(3)


def test_the_kernel_of_a_stage_follows_its_records() -> None:
    """Also in the steps of a proportion, and in a forest that is fitted without a stage."""
    data = records(0.0)
    faces = replace(data, x=data.x[:, None, :])
    flat = torch.nn.Sequential(torch.nn.Flatten(), small_task(data).model)
    split = split_records(data.secrets["s"], shadow=600, rng=stream(0, "split"))
    settings = InferenceSpec(secret="s", batch_size=8, rounds=1, trials=400)
    task = Task(flat, small_task(data).loss)
    for ask in ("property", "proportion"):
        (played,) = make_stage(ask, task, faces, split, spec=settings).attacks
        assert getattr(played, "base", played).kernel == 10
    shadow = bench(1.0)
    shadow = replace(shadow, task=task, params=params_of(flat), data=faces)
    fitted = Forest(trees=3, batches=40).fit(shadow, np.log([0.5, 0.5]), rng=stream(0, "fit"))
    assert "kernel=10" in fitted.details
    assert fitted.view == MaxPool(10)


def test_every_adversary_is_there_and_plays() -> None:
    for name in ADVERSARIES:
        assert parse_adversary(name).name == name
        assert games_of(parse_adversary(name)) == tuple(
            g for g in GAMES if name in adversaries_for(g)
        )


def test_own_classes_play_the_games_they_fit(module: str) -> None:
    games = {
        "FirstCoordinate": ("property", "attribute", "proportion"),
        "OfUsers": ("user",),
        "OfAttributes": ("attribute",),
    }
    for name, wanted in games.items():
        assert games_of(parse_adversary(f"{module}:{name}")) == wanted
    with pytest.raises(InputError, match="'atribute'; did you mean 'attribute'"):
        games_of(parse_adversary(f"{module}:OfNothing"))
    with pytest.raises(InputError, match="made int; expected an attack with a method fit"):
        parse_adversary(f"{module}:number")


@pytest.mark.parametrize("shift", [0.0, 8.0])
def test_an_audit_is_played_by_an_adversary_of_one_s_own(module: str, shift: float) -> None:
    text = f"{module}:FirstCoordinate:batches=300"
    data = records(shift)
    played = audit(small_stage(data, parse_adversary(text), rounds=1, trials=600))
    (auroc,) = (m for m in played if m.metric == "auroc" and m.round == 1)
    assert auroc.adversary == text
    assert "batches=300" in auroc.details["adversary"]
    if shift:
        assert auroc.estimate.low > 0.6
    else:
        assert auroc.estimate.low <= 0.5 <= auroc.estimate.high


def test_a_run_takes_several_settings_of_one_adversary(module: str) -> None:
    texts = ("forest", "forest:kernel=10", f"{module}:FirstCoordinate")
    spec = InferenceSpec(ask=("property",), adversary=texts)
    assert tuple(attack.name for attack in attacks_for(spec, "property").attacks) == texts
    check(spec)
    with pytest.raises(InputError, match="'forest:kernel=10' supports none of the games"):
        check(InferenceSpec(ask=("user",), adversary=("plda", "forest:kernel=10")))


def test_settings_that_are_the_defaults_give_the_same_figures() -> None:
    """Whatever they are written as: both draw the same shadow batches."""
    attacks = parse_adversary("forest:batches=200"), parse_adversary("forest:kernel=3,batches=200")
    played = audit(small_stage(records(1.0), *attacks, rounds=1, trials=300))
    aurocs = [m.estimate for m in played if m.metric == "auroc" and m.round == 1]
    assert len(aurocs) == 2
    assert aurocs[0] == aurocs[1]


def test_two_settings_of_joint_are_two_cells() -> None:
    attacks = [parse_adversary(f"joint:directions={n},batches=300,folds=2") for n in (0, 5)]
    played = audit(small_stage(records(1.0), *attacks, rounds=2, trials=300))
    cells = {m.adversary: m.estimate.value for m in played if m.round == "accumulated"}
    assert set(cells) == {attack.name for attack in attacks}
    assert all(np.isfinite(value) for value in cells.values())


def test_another_package_registers_its_own(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    points = {"first": EntryPoint("first", f"{module}:FirstCoordinate", REGISTRY.group)}
    monkeypatch.setattr(sys, "path", [str(Path.cwd()), *sys.path])
    monkeypatch.setattr(registry, "registered", lambda group: points)
    attack = parse_adversary("first:sharpness=2")
    assert attack.name == "first:sharpness=2"
    assert attack.sharpness == 2.0


def test_the_catalog_loads_no_torch() -> None:
    """In a fresh process, without what ``leakgauge`` itself imports."""
    code = f"""
import sys, types
package = types.ModuleType("leakgauge")
package.__path__ = {list(leakgauge.__path__)!r}
sys.modules["leakgauge"] = package
import leakgauge.inference.catalog
print([heavy for heavy in ("torch", "sklearn", "matplotlib") if heavy in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
