"""Advice of messages and reports: the command parses, and what it promises comes."""

import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leakgauge.catalog import questions
from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.data.proxies import option
from leakgauge.inference.report.next_command import next_command
from leakgauge.inference.report.verdict import limited_by_records, verdicts
from leakgauge.results.measurements import Run
from leakgauge.runs.asking import AuditRequest, asked_of
from leakgauge.runs.audit import AuditQuestion, prepare_all
from leakgauge.runs.repeat import with_fixes
from support.made_runs import make_records

NAMES = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=12)


@given(NAMES)
@settings(max_examples=60, deadline=None)
def test_an_advised_option_is_one_word_of_a_shell_and_is_found_again(name: str) -> None:
    assert shlex.split(option("--drop", name)) == ["--drop", name]
    warnings = [f"a warning; use {option('--drop', name)} to see what the others give away"]
    assert with_fixes(Run("", {}, {}, warnings=warnings))["drop"] == [name]


def test_the_command_to_run_next_has_the_fixes_that_the_warnings_name() -> None:
    texts = [
        f"one; use {option('--drop', 'Unnamed: 0')} unless it says something about the row",
        f"two; use {option('--group', 'the user')}, so that no user is on two sides",
    ]
    asked = {"ask": ["property"], "data": "d.csv", "drop": ["a"]}
    run = Run("", asked, {}, warnings=texts)
    question = questions()["inference"]
    words = shlex.split(next_command(run, verdicts(run, make_records(2.0)), question))
    pairs = [words[i : i + 2] for i in range(len(words))]
    assert ["--drop", "a"] in pairs
    assert ["--drop", "Unnamed: 0"] in pairs
    assert ["--group", "the user"] in pairs


def table(folder: Path, records: int, values: int = 2) -> Path:
    rng = stream(0, "advice")
    names = np.array(["f", "m", "x"])[:values]
    frame = pd.DataFrame(
        {
            "income": rng.normal(size=records).round(2),
            "sex": names[rng.permutation(np.arange(records) % values)],
            "label": rng.choice(["high", "low"], size=records),
        }
    )
    path = folder / "advice.csv"
    frame.to_csv(path, index=False)
    return path


def prepared(path: Path, **more: object) -> AuditQuestion:
    options = {"data": str(path), "label": "label", "secret": "sex", "adversary": "forest"}
    asked = asked_of(AuditRequest(options={**options, **more}), questions())
    ((_, one),) = prepare_all(asked).items()
    return one


def groups(one: AuditQuestion) -> int:
    found = one.prepared.run.data["blocks"]["property"]
    assert isinstance(found, int)
    return found


@pytest.mark.parametrize(
    ("records", "batch", "trials", "limited"), [(600, 16, 2000, True), (3000, 2, 200, False)]
)
def test_what_limits_an_interval_is_what_the_advice_changes(
    tmp_path: Path, records: int, batch: int, trials: int, limited: bool
) -> None:
    path = table(tmp_path, records)
    now = prepared(path, batch_size=batch, trials=trials)
    assert limited_by_records(now.prepared.run, "property") is limited
    more_trials = prepared(path, batch_size=batch, trials=4 * trials)
    smaller = prepared(path, batch_size=max(1, batch // 4), trials=trials)
    assert (groups(more_trials) > groups(now)) is not limited
    assert (groups(smaller) > groups(now)) is limited


@pytest.mark.parametrize(("limited", "flag"), [(True, "--batch-size"), (False, "--trials")])
def test_an_open_answer_gets_the_command_that_narrows_it(limited: bool, flag: str) -> None:
    asked = {"ask": ["property"], "data": "d.csv", "batch_size": 12, "trials": 2000}
    data = {"blocks": {"property": 12 if limited else 200}, "secret_values": {"f": 9, "m": 9}}
    run = Run("", asked, data)
    found = verdicts(run, make_records(0.1, 0.2))
    assert {one.level for one in found} == {"inconclusive"}
    words = shlex.split(next_command(run, found, questions()["inference"]))
    assert words[words.index(flag) + 1] == ("3" if limited else "8000")
    assert ("more trials would not change that" in found[0].text) is limited


@pytest.mark.parametrize("values", [2, 3])
def test_rare_values_are_merged_only_where_there_are_three(tmp_path: Path, values: int) -> None:
    with pytest.raises(InputError, match="bring more records") as said:
        prepared(table(tmp_path, 12 * values, values))
    assert ("--merge-rare" in str(said.value)) is (values > 2)
