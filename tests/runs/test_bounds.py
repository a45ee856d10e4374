"""The bounds that settings declare, for every setting of every question."""

import contextlib
import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leakgauge.catalog import questions
from leakgauge.core.checks import InputError
from leakgauge.core.numbers import MOST
from leakgauge.runs.setting import Declared
from leakgauge.runs.spec import Spec, check_bounds, declared
from support.drawn import inside, outside

FIELDS = [(name, one) for name, each in questions().items() for one in declared(each.Spec).values()]


def spec_with(name: str, one: Declared, item: Any) -> Spec:
    value = (item,) if one.kind is tuple else item
    spec: Spec = dataclasses.replace(questions()[name].Spec(data="t.csv"), **{one.name: value})
    return spec


@pytest.mark.parametrize("name", questions())
def test_a_value_outside_of_the_declared_bounds_is_refused_by_name(name: str) -> None:
    refused = 0
    for one in declared(questions()[name].Spec).values():
        for item in outside(one):
            with pytest.raises(InputError, match=one.flag) as error:
                questions()[name].check(spec_with(name, one, item))
            assert "\n" not in str(error.value)
            refused += 1
    assert refused > 50


@pytest.mark.parametrize("name", questions())
def test_values_inside_of_the_bounds_are_accepted_or_contradict_others(name: str) -> None:
    """No check fails, and none needs long: 40 of them, drawn from the declared settings."""
    fields = list(declared(questions()[name].Spec).values())

    @settings(max_examples=40, deadline=None, database=None)
    @given(st.data())
    def tried(data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(fields))
        spec = spec_with(name, one, data.draw(inside(one)))
        check_bounds(spec)
        with contextlib.suppress(InputError):
            questions()[name].check(spec)

    tried()


def test_every_number_has_an_end() -> None:
    """Without one, a run of 10**17 iterations never ends."""
    for name, one in FIELDS:
        if one.item is int and one.name != "seed":
            assert one.most <= MOST, (name, one.name)
