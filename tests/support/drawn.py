"""Values inside and outside of the bounds that settings declare, for Hypothesis."""

import math
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from leakgauge.runs.setting import Declared

OWN_CHECK = ("data", "kept", "files", "task", "ask")
"""Texts that other checks read: paths, and the words of the question."""


def inside(one: Declared) -> st.SearchStrategy[Any]:
    """Return values of one item that the setting declares as right."""
    setting = one.setting
    if one.item is bool:
        return st.booleans()
    if one.item is Mapping:
        return st.dictionaries(st.sampled_from(["age", "é"]), st.integers(1, 50), max_size=2)
    if setting.choices:
        return st.sampled_from(setting.choices)
    if one.item is str:
        named = st.sampled_from(setting.offered) if setting.offered else st.nothing()
        return named | st.text(min_size=1, max_size=5)
    low = setting.least if setting.least is not None else setting.above
    low = 0 if low is None else low
    ends = [low + (setting.least is None), one.most]
    if one.item is int:
        return st.integers(int(ends[0]), int(one.most)) | st.sampled_from([*map(int, ends)])
    top = min(one.most, 1e9)
    return st.floats(low, top, exclude_min=setting.above is not None, allow_nan=False)


def outside(one: Declared) -> list[Any]:
    """Return values of one item that the setting declares as wrong; none where all are right."""
    setting = one.setting
    if one.name in OWN_CHECK or one.item is bool:
        return []
    if one.item is Mapping:
        return [{"age": 0}, {"age": -1}, {"age": 10**17}]
    if setting.choices:
        return ["", "nothing", f"{setting.choices[0]} "]
    if one.item is str:
        return [""]
    wrong: list[Any] = [10**17, 10**30] if one.item is int else [math.inf, math.nan, 1e30]
    wrong += [-value for value in wrong]
    if setting.least is not None:
        wrong.append(setting.least - 1)
    if setting.above is not None:
        wrong += [setting.above, setting.above - 1]
    low = -one.most if setting.least is None else setting.least
    return [value for value in [*wrong, one.most * 2 + 1] if not low <= value <= one.most]
