import numpy as np
import pytest
import torch
from scipy import stats

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.core.types import Column, Dataset, Schema
from leakgauge.inference import AttributeInference, PropertyInference
from leakgauge.inference.games.blocks import MIN_BLOCKS, deal_blocks
from leakgauge.inference.games.mixing import Pure


def pool(n: int = 600, *, users: int | None = None, seed: int = 0) -> Dataset:
    rng = stream(seed, "pool")
    codes = torch.from_numpy((rng.random(n) < 0.4).astype(np.int64))
    people = None if users is None else torch.from_numpy(rng.integers(users, size=n))
    return Dataset(torch.randn(n, 3), codes, {"sex": codes}, people)


def game(data: Dataset, batch_size: int = 8, **kwargs) -> PropertyInference:
    return PropertyInference.deal(
        data, "sex", batch_size=batch_size, mix=Pure(2), rng=stream(0, "deal"), **kwargs
    )


def test_every_record_of_a_batch_has_the_secret() -> None:
    data = pool()
    trials = game(data).draw_trials(300, rng=stream(0, "play"))
    assert trials.x.shape == (300, 8, 3)
    assert trials.y.shape == (300, 8)
    assert (data.secrets["sex"][trials.rows] == trials.secret[:, None]).all()


def test_no_record_twice_in_a_batch() -> None:
    rows = game(pool()).draw_trials(300, rng=stream(0, "play")).rows
    assert all(len(set(row.tolist())) == 8 for row in rows)


@pytest.mark.parametrize("users", [None, 150])
def test_trials_of_different_blocks_share_no_record_and_no_person(users: int | None) -> None:
    data = pool(users=users)
    trials = game(data).draw_trials(2000, rng=stream(0, "play"))
    assert len(trials.block.unique()) >= MIN_BLOCKS
    owner: dict[int, int] = {}
    unit = torch.arange(len(data)) if data.users is None else data.users
    for block, row in zip(trials.block.tolist(), trials.rows, strict=True):
        for one in unit[row].tolist():
            assert owner.setdefault(one, block) == block


def test_a_batch_alone_is_uniform_over_the_records_with_its_secret() -> None:
    """Over many deals every record is drawn equally often, although one deal has few blocks."""
    data = pool(200)
    members = torch.where(data.secrets["sex"] == 1)[0].numpy()
    counts = np.zeros(200)
    for deal in range(200):
        played = PropertyInference.deal(
            data, "sex", batch_size=4, mix=Pure(2), rng=stream(deal, "deal")
        ).draw_trials(20, rng=stream(deal, "play"))
        np.add.at(counts, played.rows[played.secret == 1][:1].numpy().ravel(), 1)
    assert stats.chisquare(counts[members]).pvalue > 1e-3
    assert counts.sum() == counts[members].sum()


def test_prior_is_played() -> None:
    trials = game(pool(), prior=(0.9, 0.1)).draw_trials(4000, rng=stream(0, "play"))
    assert float(trials.secret.double().mean()) == pytest.approx(0.1, abs=0.02)


def test_redraw_keeps_secrets_and_blocks() -> None:
    dealt = game(pool())
    trials = dealt.draw_trials(100, rng=stream(0, "play"))
    again = dealt.redraw(trials, rng=stream(0, "again"))
    assert torch.equal(again.secret, trials.secret)
    assert torch.equal(again.block, trials.block)
    assert not torch.equal(again.rows, trials.rows)


def test_dealing_holds_a_batch_of_each_value_in_each_block() -> None:
    rng = stream(1, "codes")
    codes, users = rng.integers(3, size=900), rng.integers(250, size=900)
    block = deal_blocks(codes, users, 3, 5, rng=rng)
    held = np.zeros((block.max() + 1, 3))
    np.add.at(held, (block, codes), 1)
    assert held.min() >= 5


@pytest.mark.parametrize(
    ("n", "batch_size", "says"),
    [
        (60, 40, "batch size is 40, but only"),
        (60, 8, "lower --batch-size to at most"),
        (600, 0, "batch size is 0; expected a number above 0"),
    ],
)
def test_refusals(n: int, batch_size: int, says: str) -> None:
    with pytest.raises(InputError, match=says):
        game(pool(n), batch_size)


def test_each_game_refuses_the_other_ones_data() -> None:
    def with_columns(*names: str) -> Dataset:
        columns = tuple(Column(name, "number", i, i + 1) for i, name in enumerate(names))
        schema = Schema(columns, "y", ("0", "1"), {"sex": ("f", "m")})
        data = pool()
        return Dataset(data.x, data.y, data.secrets, schema=schema)

    kwargs = {"batch_size": 4, "mix": Pure(2), "rng": stream(0, "deal")}
    with pytest.raises(InputError, match="'sex' is a feature"):
        PropertyInference.deal(with_columns("age", "sex"), "sex", **kwargs)
    with pytest.raises(InputError, match="'sex' is not among the encoded features"):
        AttributeInference.deal(with_columns("age"), "sex", **kwargs)
    AttributeInference.deal(with_columns("age", "sex"), "sex", **kwargs)
    PropertyInference.deal(with_columns("age"), "sex", **kwargs)
