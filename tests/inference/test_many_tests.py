"""What a page shows of many tests: most in one line, a few at full length."""

import dataclasses
import re

import pytest

from leakgauge.inference.report.titles import adversary_tests, title
from leakgauge.inference.report.views import LIMIT as SHOWN
from leakgauge.inference.report.views import selected
from leakgauge.results.measurements import (
    Measurement,
    Run,
)
from support.made_runs import (
    DEFENSES,
    LIMIT,
    defended,
    make_records,
    promised_run,
    render,
    stacked,
    visible,
)


def hundred(rounds: int) -> tuple[Run, list[Measurement]]:
    """100 tests with everything that takes room."""
    names = [f"dpsgd:clip=2,noise=0.{i}1" for i in range(1, 5)]
    games = ("property", "attribute")
    adversaries = [f"adversary number {i}" for i in range(5)]
    made: list[Measurement] = []
    for game in games:
        for i, adversary in enumerate(adversaries):
            for name in ("none", *names):
                for knowledge in ("static", "adaptive"):
                    strength = 1.0 + 0.1 * i * (knowledge == "adaptive")
                    of = {"game": game, "adversary": adversary, "defense": name}
                    made += make_records(strength, 0.02, rounds, knowledge=knowledge, **of)
    told = [
        dataclasses.replace(r, details={"adversary": f"Forest(trees=200), slope {r.round} " * 2})
        for r in made
        if r.metric != "accuracy"
    ]
    utility = {(r.game, r.defense): r for r in made if r.metric == "accuracy"}
    return promised_run(*names, games=games), [*stacked(told), *utility.values()]


@pytest.mark.parametrize(
    "rounds", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (10, 100))]
)
def test_a_hundred_tests_stay_below_a_megabyte(rounds: int) -> None:
    run, records = hundred(rounds)
    assert len(adversary_tests(records)) == 100
    page = render(run, records)
    assert len(page.encode()) < LIMIT
    text = " ".join(visible(page).split())
    assert f"{SHOWN} of 100 tests are shown at full length" in text
    for test in adversary_tests(records):
        assert title(test) in text
    assert page.count('<article class="test"') == SHOWN
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_what_is_drawn_is_the_worst_case_of_each_defense() -> None:
    _, records = hundred(1)
    shown = selected(adversary_tests(records))
    assert len(shown) == SHOWN
    for game in ("property", "attribute"):
        for i in range(1, 5):
            worst = [
                test
                for test in shown
                if (test.game, test.defense) == (game, f"dpsgd:clip=2,noise=0.{i}1")
                and test.knowledge == "adaptive"
            ]
            assert "adversary number 4" in {test.adversary for test in worst}
    few = adversary_tests(defended(DEFENSES))
    assert selected(few[:SHOWN]) == few[:SHOWN]
    assert selected(few, limit=3) == [test for test in few if test in selected(few, limit=3)]
    assert len(selected(few, limit=3)) == 3
