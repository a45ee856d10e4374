"""Splits of records: no overlap, balance, users on one side, refusal of rare values."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakgauge.core.checks import InputError
from leakgauge.data import split_records


def draw(seed, secret, **settings):
    return split_records(torch.as_tensor(secret), rng=np.random.default_rng(seed), **settings)


def parts(split):
    return [split.private, split.public, split.test]


@st.composite
def populations(draw):
    """Secrets and users of any sizes; values may be rare and users may hold several values."""
    people = draw(st.integers(1, 60))
    m = draw(st.integers(2, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    sizes = rng.integers(1, draw(st.integers(2, 9)), people)
    users = rng.permutation(np.repeat(np.arange(people) * 7 + 3, sizes))
    if draw(st.booleans()):
        secret = rng.choice(m, people, p=rng.dirichlet(np.ones(m)))[(users - 3) // 7]
    else:
        secret = rng.choice(m, len(users), p=rng.dirichlet(np.ones(m)))
    return torch.tensor(secret), torch.tensor(users), m


@settings(max_examples=150, deadline=None)
@given(
    populations(),
    st.booleans(),
    st.integers(0, 2**32),
    st.integers(0, 100),
    st.sampled_from([0.0, 0.2, 0.5]),
)
def test_no_record_and_no_user_is_on_two_sides(population, with_users, seed, shadow, fraction):
    secret, users, m = population
    split = draw(
        seed,
        secret,
        users=users if with_users else None,
        shadow=shadow,
        test_fraction=fraction,
        values=[str(v) for v in range(m)],
        need_private=0,
        need_public=0,
    )
    together = torch.cat(parts(split))
    assert len(together.unique()) == len(together) <= len(secret)
    assert all(part.dtype == torch.int64 for part in parts(split))
    assert all(torch.equal(part, part.sort().values) for part in parts(split))

    public = torch.bincount(secret[split.public], minlength=m)
    assert len(split.public) <= shadow
    rest = torch.bincount(secret, minlength=m) - torch.bincount(secret[split.test], minlength=m)
    private = torch.bincount(secret[split.private], minlength=m)
    assert bool((4 * private >= 3 * rest).all()), "more than a quarter of a value left private"

    if with_users:
        people = [set(users[part].tolist()) for part in parts(split)]
        assert len(set.union(*people)) == sum(len(side) for side in people)
        largest = int(torch.bincount(users).max())
        assert abs(len(split.test) - fraction * len(secret)) <= largest
    else:
        assert len(together) == len(secret), "without users every record is on a side"
        assert len(split.test) == round(fraction * len(secret))
        assert len(split.public) == min(shadow, int((rest // 4).sum()))
        short = public < shadow // m
        assert bool((public[short] == rest[short] // 4).all()), "fewer than a value could give"


def test_the_split_depends_on_its_generator_only():
    secret = torch.arange(1000) % 3
    one, same, other = draw(0, secret), draw(0, secret), draw(1, secret)
    assert all(torch.equal(a, b) for a, b in zip(parts(one), parts(same), strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(parts(one), parts(other), strict=True))


def test_each_record_is_as_likely_as_another_to_be_drawn():
    secret = torch.arange(200) % 2
    counts = torch.zeros(3, 200)
    for seed in range(400):
        for side, part in enumerate(parts(draw(seed, secret, shadow=40))):
            counts[side, part] += 1
    # Each count is binomial; of 200 the largest lies within about 3.5 standard deviations.
    for found, share in zip(counts, (0.6, 0.2, 0.2), strict=True):
        spread = (400 * share * (1 - share)) ** 0.5
        assert float((found - 400 * share).abs().max()) < 4.5 * spread


def test_the_public_records_of_a_user_are_drawn_at_random():
    users = torch.arange(300) // 3
    counts = torch.zeros(3)
    for seed in range(200):
        # Ten of each value: of four users' twelve records two are left unused.
        public = draw(seed, users % 2, users=users, shadow=20).public
        assert len(public) == 20
        counts += torch.bincount(public % 3, minlength=3)
    assert float((counts / counts.sum() - 1 / 3).abs().max()) < 0.03


def test_public_is_balanced_where_a_quarter_of_each_value_allows_it():
    secret = (torch.arange(10_000) % 10 == 0).long()
    split = draw(0, secret, shadow=300)
    assert torch.bincount(secret[split.public]).tolist() == [150] * 2
    assert len(split.test) == 2000


def test_what_a_rare_value_cannot_give_comes_from_the_others():
    secret = (torch.arange(10_000) % 10 == 0).long()
    split = draw(0, secret)
    ones = int((secret == 1).sum()) - int((secret[split.test] == 1).sum())
    assert torch.bincount(secret[split.public]).tolist() == [1000 - ones // 4, ones // 4]


@pytest.mark.parametrize(
    ("secret", "settings", "message"),
    [
        ([0] * 97 + [1] * 3, {"values": ["white", "other"]}, "value 'other' has 3 records, "),
        ([0] * 97 + [1] * 3, {}, "0 public; needed are 1 private and 1 public, so about 8 records"),
        ([0, 1] * 50, {"values": ["a", "b", "c"]}, "secret value 'c' has 0 records"),
        ([0, 1] * 50, {"need_private": 60}, "secret value 0 has 50 records"),
        ([0, 1] * 50, {"need_public": 30}, "30 public, so about 163 records of each value; bring"),
        ([0, 1] * 50, {"shadow": 1}, "shadow is 1, which leaves 0 records for each of 2"),
        ([0, 1] * 50, {"shadow": -1}, "shadow is -1; expected 0 or more"),
        ([0, 1] * 50, {"test_fraction": 1.0}, "test_fraction is 1; expected 0 up to 1"),
        ([], {}, "there are no records to split"),
    ],
)  # fmt: skip
def test_rare_values_are_refused_by_name(secret, settings, message):
    with pytest.raises(InputError) as caught:
        draw(0, torch.tensor(secret, dtype=torch.int64), **settings)
    assert message in str(caught.value)


def test_a_label_without_private_records_is_refused_by_name():
    secret = torch.arange(400) % 2
    label = torch.zeros(400, dtype=torch.int64)
    label[int(draw(0, secret).test[0])] = 1
    with pytest.raises(InputError, match="label value 'yes' has 1 records, 0 of them among the"):
        draw(0, secret, label=label, classes=["no", "yes"])
    draw(1, secret, label=torch.arange(400) % 5)


def test_few_users_who_hold_too_much_are_refused():
    users = torch.arange(400) % 4
    with pytest.raises(InputError, match="0 public"):
        draw(0, users % 2, users=users)


@pytest.mark.parametrize("need", [1, pytest.param(10, marks=pytest.mark.slow), 40])
def test_the_number_of_records_that_is_asked_for_is_nearly_always_enough(need):
    few = torch.arange(4000) < 2
    with pytest.raises(InputError) as caught:
        draw(0, few.long(), need_public=need)
    asked = int(re.search(r"about (\d+) records", str(caught.value))[1])
    enough = (torch.arange(4000) < asked).long()
    failed = 0
    for seed in range(100):
        try:
            draw(seed, enough, need_public=need)
        except InputError:
            failed += 1
    assert failed <= 5


def test_one_user_with_nearly_all_records_is_the_reason_that_is_given():
    secret = torch.arange(1000) % 2
    users = torch.where(torch.arange(1000) < 900, 0, torch.arange(1000))
    with pytest.raises(InputError, match=r"one user has 450 of the 500 records of this value; bri"):
        draw(0, secret, users=users, need_private=200, need_public=20)
