"""Who holds which records of a federation: equal sizes, no overlap, users whole."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakgauge.core.checks import InputError
from leakgauge.data.split_members import split_known, split_share
from leakgauge.data.split_participants import split_participants


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


def test_too_few_records_or_users_are_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match="49 records leave 9 for each of 4 participants"):
        split_participants(49, 4, rng=rng)
    with pytest.raises(InputError, match="3 users leave a participant with 0 records"):
        split_participants(300, 4, rng=rng, users=torch.arange(300) // 100)
    with pytest.raises(InputError, match="there are 9 non-members; bring 10 or more"):
        split_known(torch.arange(20), torch.arange(20, 29), rng=rng)
