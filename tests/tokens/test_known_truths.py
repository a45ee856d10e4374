"""Held-out estimates of an information that is known, at the size that a user would take."""

import pytest
import torch

from leakgauge.tokens.estimation import mutual_information
from support.gaussians import gaussians

N, D = 20_000, 20
LOWER, ALL = ("infonce", "nwj", "smile"), ("infonce", "nwj", "smile", "mine")


def found(nats: float, by: str, seed: int):
    x, y = gaussians(N, D, nats, seed=seed)
    return mutual_information(x, y, seed=seed, by=by)


def line(nats: float, by: str, seed: int, one) -> str:
    bound, gap = one.bound, one.critic_gap
    return (
        f"I = {nats:g}  {by:8} seed {seed:2}  {bound.value:7.3f} [{bound.low:7.3f}, "
        f"{bound.high:7.3f}]  in sample {one.in_sample:7.3f}  gap {gap.value:7.3f}  "
        f"iterations {one.iterations}"
    )


@pytest.mark.slow
def test_known_information_is_found() -> None:
    values: dict[tuple[float, str], list[float]] = {}
    print()
    for nats in (2.0, 5.0):
        for by in ALL:
            for seed in range(3):
                one = found(nats, by, seed)
                print(line(nats, by, seed, one), flush=True)
                values.setdefault((nats, by), []).append(one.bound.value)
    for by in LOWER:
        assert all(abs(value - 2) <= 0.2 for value in values[2.0, by]), by
    assert all(abs(value - 5) <= 1.5 for value in values[5.0, "smile"])


@pytest.mark.slow
@pytest.mark.parametrize("by", ALL)
def test_independent_data_have_intervals_with_0(by: str) -> None:
    print()
    held, wide = 0, []
    for seed in range(20):
        one = found(0.0, by, 100 + seed)
        held += one.bound.low <= 0 <= one.bound.high
        wide.append(one.bound.high - one.bound.low)
        print(line(0.0, by, 100 + seed, one), flush=True)
    width = float(torch.tensor(wide).median())
    print(f"I = 0  {by:8} {held} of 20 intervals hold 0; median width {width:.4f} nats")
    assert held >= 18
    assert width < 0.5
