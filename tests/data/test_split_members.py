"""Members, other records, shadow records and participants: no overlap, whole users, sizes."""

from dataclasses import astuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakgauge.core.checks import InputError
from leakgauge.data.split_members import (
    split_known,
    split_members,
    split_participants,
    split_share,
)


@settings(max_examples=100, deadline=None)
@given(st.integers(30, 400), st.integers(0, 2**32), st.none() | st.integers(10, 500))
def test_each_record_is_in_one_part_of_its_size(count, seed, members):
    split = split_members(count, rng=np.random.default_rng(seed), members=members)
    together = torch.cat(astuple(split))
    assert together.sort().values.tolist() == list(range(count))
    size = min(max(count // 4, 10) if members is None else members, count // 3)
    assert len(split.members) == size
    sizes = [len(part) for part in astuple(split)]
    assert sizes[:3] == sizes[3:6], "equally many members and non-members in each part"
    assert abs(sizes[0] - 0.4 * size) <= 0.5
    assert abs(sizes[0] + sizes[1] - 0.6 * size) <= 0.5


@settings(max_examples=100, deadline=None)
@given(st.integers(60, 120), st.integers(1, 6), st.integers(0, 2**32))
def test_no_user_is_in_two_parts(people, most, seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, most + 1, people)
    users = torch.from_numpy(rng.permutation(np.repeat(np.arange(people) * 3 + 5, sizes)))
    split = split_members(len(users), users=users, rng=rng)
    held = [set(users[part].tolist()) for part in astuple(split)]
    assert sum(map(len, held)) == len(set.union(*held)) == people
    assert sum(map(len, astuple(split))) == len(users)
    assert abs(len(split.members) - len(users) // 4) <= most


def test_the_split_follows_from_its_generator():
    one, same, other = (split_members(90, rng=np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert torch.equal(torch.cat(astuple(one)), torch.cat(astuple(same)))
    assert not torch.equal(one.members, other.members)


def test_too_few_records_or_users_are_refused():
    with pytest.raises(InputError, match=r"29 records leave 9 members; bring 30 records or more"):
        split_members(29, rng=np.random.default_rng(0))
    users = torch.arange(300) // 100
    with pytest.raises(InputError, match=r"3 users leave a part with 0 records; bring more users"):
        split_members(300, users=users, rng=np.random.default_rng(0))


@settings(max_examples=60, deadline=None)
@given(st.integers(60, 300), st.integers(2, 5), st.integers(0, 2**32))
def test_each_record_has_one_holder_and_shares_are_equal(count, participants, seed):
    held, others = split_participants(count, participants, rng=np.random.default_rng(seed))
    assert torch.cat([*held, others]).sort().values.tolist() == list(range(count))
    assert {len(one) for one in held} == {count // (participants + 1)}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_no_user_has_records_in_two_places(seed):
    rng = np.random.default_rng(seed)
    users = torch.from_numpy(rng.permutation(np.repeat(np.arange(120), 3)))
    held, others = split_participants(360, 4, rng=rng, users=users, size=60)
    each = [set(users[rows].tolist()) for rows in (*held, others)]
    assert sum(map(len, each)) == len(set.union(*each))
    parts = split_share(held[0], 0.6, rng=rng, users=users)
    assert not set(users[parts[0]].tolist()) & set(users[parts[1]].tolist())
    known = split_known(held[0], others, rng=rng, users=users)
    assert not set(users[known.known_members].tolist()) & set(users[known.target_members].tolist())
    assert len(known.target_members) == len(known.target_non_members)


def test_too_few_records_or_users_for_participants_are_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match="49 records leave 9 for each of 4 participants"):
        split_participants(49, 4, rng=rng)
    with pytest.raises(InputError, match="3 users leave a participant with 0 records"):
        split_participants(300, 4, rng=rng, users=torch.arange(300) // 100)
    with pytest.raises(InputError, match="there are 9 non-members; bring 10 or more"):
        split_known(torch.arange(20), torch.arange(20, 29), rng=rng)
