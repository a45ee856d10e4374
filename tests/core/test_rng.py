"""Random generators: torch's global ones are seeded for a while, and nothing else changes."""

import torch

from leakgauge.core.rng import own_randomness


def test_global_generators_are_seeded_and_restored_and_nothing_is_kept() -> None:
    state, waiting = torch.get_rng_state(), len(torch.cuda._queued_calls)
    drawn = []
    for _ in range(2):
        with own_randomness(1, "cpu"):
            drawn.append(torch.rand(3))
    assert torch.equal(*drawn)
    assert torch.equal(drawn[0], torch.rand(3, generator=torch.Generator().manual_seed(1)))
    assert torch.equal(torch.get_rng_state(), state)
    assert len(torch.cuda._queued_calls) == waiting, "torch.manual_seed keeps a stack trace a call"
