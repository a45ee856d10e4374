"""A norm over fewer arrays than clients send is said."""

from pathlib import Path

import pytest
import torch
from torch import nn

from leakgauge.catalog import questions
from leakgauge.defenses import ClipNorm, Defense, GaussianNoise, Noise
from leakgauge.defenses.coverage import BY_NORM, SentArrays, partly
from leakgauge.defenses.doubts import doubts
from leakgauge.defenses.layers import Layers, OnLayers
from leakgauge.defenses.transform import Chain
from leakgauge.runs.room import doubted_claims
from leakgauge.runs.spec import make_spec

PRIVATE = {
    "dpsgd": "dpsgd:clip=1,noise=100",
    "local-dp": "local-dp:clip=1,sensitivity=2,epsilon=1,delta=1e-05",
    "svt": "svt:fraction=1e-06",
    "fixed-clipping": "fixed-clipping:norm=1",
    "adaptive-clipping": "adaptive-clipping",
}
MISSED = "limits the norm of the parameters alone; the running statistics of the model"


class Scaled(nn.Module):
    """A model with a normalisation and a parameter that is a single number."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.scale = nn.BatchNorm1d(3), nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x) * self.scale


def test_the_arrays_of_the_state_that_follow_records_are_found() -> None:
    """Training moves the statistics and the counter alone, of all that is not trained."""
    model = Scaled().train()
    before = {name: leaf.clone() for name, leaf in model.named_buffers()}
    model(torch.randn(8, 3))
    moved = {name for name, leaf in model.named_buffers() if not leaf.equal(before[name])}
    found = SentArrays.of(model)
    assert set(found.statistics) == moved - {"norm.num_batches_tracked"}
    assert found.numbers == ("scale",)


def test_a_model_without_such_arrays_has_none() -> None:
    quiet = nn.Sequential(nn.GroupNorm(1, 4), nn.BatchNorm1d(4, track_running_stats=False))
    assert SentArrays.of(quiet) == SentArrays()


@pytest.mark.parametrize("word", BY_NORM)
def test_statistics_beside_a_norm_are_said(word: str) -> None:
    sent = SentArrays.of(nn.BatchNorm1d(3))
    assert doubts([PRIVATE[word]]) == ()
    (line,) = doubts([PRIVATE[word]], sent=sent)
    assert MISSED in line
    assert "\n" not in line


def test_a_defense_without_a_promise_is_not_said() -> None:
    assert doubts(["prune:rate=0.9", "sign"], sent=SentArrays.of(Scaled())) == ()


def test_svt_names_single_numbers_that_it_leaves() -> None:
    lines = doubts([PRIVATE["svt"]], sent=SentArrays.of(Scaled()))
    assert sum("single number ('scale')" in line for line in lines) == 1


@pytest.mark.parametrize("whole", [True, False])
def test_own_code_that_clips_some_layers_is_said(whole: bool) -> None:
    chain = Chain((ClipNorm(1.0), GaussianNoise(1.0)))
    update = chain if whole else OnLayers(Layers(("first",)), chain)
    lines = [*partly("mine:build", Defense("mine:build", update=update))]
    assert len(lines) == (0 if whole else 1)
    assert whole or "the layers first alone" in lines[0]


def test_noise_on_some_layers_claims_nothing_and_is_not_said() -> None:
    defense = Noise(0.1, layers="first").build(batch_size=1)
    assert [*partly("mine:build", defense)] == []


def test_own_code_is_read_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some_layers.py").write_text(
        "from leakgauge.defenses import ClipNorm, Defense\n"
        "from leakgauge.defenses.layers import Layers, OnLayers\n"
        "def build():\n"
        "    return Defense('x', per_example=OnLayers(Layers(('last',)), ClipNorm(1.0)))\n"
    )
    monkeypatch.chdir(tmp_path)
    (line,) = doubts(["some_layers:build"])
    assert line.startswith("`some_layers:build` limits the norm of the layers last alone")
    assert doubts(["some_layers:missing"]) == ()


def test_the_model_of_a_run_is_looked_at() -> None:
    spec = make_spec(questions()["inference"].Spec, {"defense": (PRIVATE["dpsgd"],)})
    assert doubted_claims(spec, model=nn.Linear(2, 2)) == ()
    (line,) = doubted_claims(spec, model=nn.BatchNorm1d(2))
    assert MISSED in line
