"""The attacker's subtraction against what the other participant really sent."""

import numpy as np
import torch

from leakgauge.core.types import Dataset, Task
from leakgauge.layers.observation import gradient_of_other
from leakgauge.models import mlp
from leakgauge.training import Participant, Protocol, State
from leakgauge.training.federation import federation
from leakgauge.training.protocol import FEDSGD


def test_two_global_models_and_the_own_gradient_give_the_other_gradient() -> None:
    rng = np.random.default_rng(0)
    task = Task(mlp(6, 3, (5,), generator=torch.Generator().manual_seed(0)).double())
    people = [
        Participant(
            Dataset(
                torch.from_numpy(rng.normal(size=(40, 6))),
                torch.from_numpy(rng.integers(3, size=40)),
            )
        )
        for _ in range(2)
    ]
    protocol = Protocol(rounds=4, kind=FEDSGD, lr=0.01, batch_size=8, weighted=False)
    for result in federation(task, State.of(task.model), people, protocol, seed=0):
        own, other = (result.sent[one].values for one in (1, 0))
        found = gradient_of_other(result.received[1], result.state.shared, own, lr=0.01)
        for name, leaf in other.items():
            torch.testing.assert_close(found[name], leaf, rtol=0, atol=1e-12)
