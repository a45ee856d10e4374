"""A model with unusual parameters passes through every question about gradients."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.core.types import Task
from leakgauge.data import split_records
from leakgauge.defenses import Defense, none
from leakgauge.guarantee import DPSGDMechanism, audit_pair
from leakgauge.inference import Attack, Discriminant, Energies, Forest, Joint, Logistic
from leakgauge.inference.run import audit, make_stage
from leakgauge.inference.spec import InferenceSpec
from leakgauge.results.measurements import Measurement
from support.defenses import clip, dpsgd, perturb, prune, quantise
from support.pairs import INPUTS, a_pair
from support.synthetic import records


class Odd(nn.Module):
    """A parameter that is a single number, one that is not used, one that is frozen."""

    def __init__(self, inputs: int = 6) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(inputs, 12), nn.Linear(12, 2)
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.unused = nn.Parameter(torch.ones(3, 3))
        self.frozen = nn.Parameter(torch.full((inputs,), 0.1), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * self.head(torch.relu(self.first(x + self.frozen)))


def odd_task(inputs: int = 6) -> Task:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Task(Odd(inputs).double(), cross_entropy)


def found(
    attack: Attack, defense: Defense, task: Task | None = None, *, trials: int = 400, n: int = 1200
) -> list[Measurement]:
    data = records(3.0, n=n)
    split = split_records(data.secrets["s"], shadow=n // 2, rng=stream(0, "split"))
    settings = InferenceSpec(secret="s", batch_size=8, rounds=2, trials=trials)
    stage = make_stage(
        "property",
        odd_task() if task is None else task,
        data,
        split,
        attacks=[attack],
        spec=settings,
        defense=defense,
    )
    return [one for one in audit(stage) if one.metric == "auroc"]


@pytest.mark.parametrize(
    "attack",
    [
        Forest(trees=10, batches=200),
        Energies(batches=200),
        Discriminant(batches=200),
        Joint(batches=200),
        Logistic(batches=200),
    ],
    ids=lambda attack: attack.name,
)
def test_every_adversary_reads_its_gradients(attack: Attack) -> None:
    assert found(attack, none())[0].estimate.value > 0.8


@pytest.mark.parametrize(
    "defense",
    [clip(1.0), dpsgd(2.0, 0.01, batch_size=8), perturb(), prune(0.5), quantise(4)],
    ids=lambda defense: defense.name,
)
def test_every_defense_takes_its_gradients(defense: Defense) -> None:
    assert len(found(Forest(trees=10, batches=50), defense, trials=40, n=300)) > 3


def test_its_guarantee_is_audited() -> None:
    pair = a_pair()
    task = odd_task(INPUTS)
    record = audit_pair(
        task, None, replace(pair, x=pair.x.double()), DPSGDMechanism(0.5, 0.5), trials=60
    )
    assert not record.violated


def test_half_precision_is_refused() -> None:
    task = odd_task()
    with pytest.raises(InputError, match=r"is torch.bfloat16; expected float32 or float64"):
        found(Forest(), none(), Task(task.model.bfloat16(), task.loss))
