"""Federations that run twice, resume from a kept state, or are killed."""

import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from leakgauge.training import State
from leakgauge.training.federation import federation
from support import processes
from support.federations import KEPT, keep_rounds, same, stochastic


def test_two_runs_with_one_seed_are_bit_identical() -> None:
    def run(seed: int, *, without: int) -> dict[str, Tensor]:
        task, state, participants, protocol, strategy = stochastic(4)
        torch.manual_seed(without)  # torch's own generator does not count
        rounds = federation(task, state, participants, protocol, strategy=strategy, seed=seed)
        return list(rounds)[-1].state.flat()

    assert same(run(0, without=1), run(0, without=2))
    assert not same(run(0, without=1), run(1, without=1))


def test_global_randomness_and_the_model_stay_as_they_are() -> None:
    task, state, participants, protocol, strategy = stochastic(1)
    before = {name: leaf.clone() for name, leaf in task.model.state_dict().items()}
    torch.manual_seed(3)
    list(federation(task, state, participants, protocol, strategy=strategy, seed=0))
    assert float(torch.rand(())) == float(torch.rand((), generator=torch.manual_seed(3)))
    assert same(task.model.state_dict(), before)
    assert task.model.training
    assert all(leaf.grad is None for leaf in task.model.parameters())


def test_a_federation_goes_on_from_any_state() -> None:
    task, state, participants, protocol, strategy = stochastic(4)
    whole = list(federation(task, state, participants, protocol, strategy=strategy, seed=0))
    for after in (0, 1, 3):
        kept = state if after == 0 else State.from_flat(whole[after - 1].state.flat())
        rest = list(
            federation(task, kept, participants, protocol, strategy=strategy, seed=0, after=after)
        )
        assert [one.number for one in rest] == list(range(after + 1, 5))
        assert same(rest[-1].state.flat(), whole[-1].state.flat())
    over = federation(
        task, whole[-1].state, participants, protocol, strategy=strategy, seed=0, after=4
    )
    assert list(over) == []


@pytest.mark.slow
@pytest.mark.process
def test_a_federation_that_is_killed_and_goes_on_ends_the_same(tmp_path: Path) -> None:
    """A real process, killed by SIGKILL between two rounds or in the middle of one."""
    task, state, participants, protocol, strategy = stochastic(KEPT)
    whole = list(federation(task, state, participants, protocol, strategy=strategy, seed=0))
    program = [sys.executable, "-m", "support.federations", tmp_path]
    running = processes.start(program, cwd=Path(__file__).parents[1])
    while not (tmp_path / "3").exists():
        assert running.poll() is None, "it ended before it could be killed"
        time.sleep(0.005)
    assert processes.kill(running)
    assert not (tmp_path / str(KEPT)).exists()
    keep_rounds(tmp_path)
    found = load_file(tmp_path / str(KEPT))
    assert same(found, whole[-1].state.flat())
