"""The default batch on small tables: it fits the data, and a note says so."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from leakgauge.catalog import questions
from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.inference.games.blocks import MIN_BLOCKS
from leakgauge.runs.asking import ALL, AuditRequest, all_allowed, asked_of
from leakgauge.runs.audit import AuditQuestion, prepare_all
from leakgauge.runs.sources import source_of

WORDS = {"property": 16, "attribute": 16, "proportion": 128, "layers": 32}


def table(folder: Path, records: int) -> Path:
    rng = stream(0, "small")
    sex = rng.permutation(np.arange(records) % 2)
    frame = pd.DataFrame(
        {
            "income": (rng.normal(size=records) + sex).round(2),
            "sex": np.where(sex == 1, "f", "m"),
            "label": rng.choice(["high", "low"], size=records),
        }
    )
    path = folder / "small.csv"
    frame.to_csv(path, index=False)
    return path


def prepared(path: Path, word: str, **options: object) -> AuditQuestion:
    secret = {} if word in ("timeline", "user") else {"secret": "sex"}
    options = {"data": str(path), "label": "label", **secret, **options}
    asked = asked_of(AuditRequest(asks=[word], options=options), questions())
    ((_, one),) = prepare_all(asked).items()
    return one


def batch_of(one: AuditQuestion) -> int:
    size = one.prepared.run.settings["batch_size"]
    assert isinstance(size, int)
    return size


@pytest.mark.parametrize(("word", "default"), WORDS.items())
def test_the_default_batch_fits_a_small_table_and_a_note_says_so(
    tmp_path: Path, word: str, default: int
) -> None:
    path = table(tmp_path, 300)
    one = prepared(path, word)
    size, run = batch_of(one), one.prepared.run
    fewest = run.data["private"] // 2
    (note,) = (note for note in run.notes if "default batch" in note)
    assert 1 <= size < default
    assert size * MIN_BLOCKS <= fewest + 1
    assert f"default batch of {default} records" in note
    assert f"batches of {size} are used" in note
    # A size that the user names is used as it is, or refused.
    named = prepared(path, word, batch_size=size)
    assert batch_of(named) == size
    assert not [note for note in named.prepared.run.notes if "default batch" in note]
    with pytest.raises(InputError, match="lower --batch-size to at most"):
        prepared(path, word, batch_size=default + 1)


@pytest.mark.parametrize(("records", "size"), [(60, 1), (700, 14), (990, 19), (1010, 20)])
def test_the_default_batch_of_a_timeline_fits(tmp_path: Path, records: int, size: int) -> None:
    """40 times the batch must be there to train on, which is four fifths of the records."""
    path = table(tmp_path, records)
    one = prepared(path, "timeline")
    assert batch_of(one) == size
    notes = [note for note in one.prepared.run.notes if "default batch of 20" in note]
    assert len(notes) == (size < 20)
    assert all(f"batches of {size} are used" in note for note in notes)
    assert batch_of(prepared(path, "timeline", batch_size=1)) == 1
    with pytest.raises(InputError, match="batches of 30 need 1200 and 10"):
        prepared(path, "timeline", batch_size=30)


def test_too_few_records_for_any_timeline_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="bring more records"):
        prepared(table(tmp_path, 40), "timeline")


def of_users(folder: Path, users: int, each: int) -> Path:
    path = table(folder, users * each)
    frame = pd.read_csv(path).assign(who=np.arange(users * each) // each)
    frame.to_csv(path, index=False)
    return path


@pytest.mark.parametrize(("each", "size"), [(2, 1), (6, 3), (15, 7), (16, 8)])
def test_the_default_batch_of_users_fits(tmp_path: Path, each: int, size: int) -> None:
    """A user needs two disjoint batches."""
    path = of_users(tmp_path, 120, each)
    one = prepared(path, "user", group="who")
    assert batch_of(one) == size
    notes = [note for note in one.prepared.run.notes if "default batch of 8" in note]
    assert len(notes) == (size < 8)
    assert all(f"batches of {size} are used" in note for note in notes)
    with pytest.raises(InputError, match="lower --batch-size"):
        prepared(path, "user", group="who", batch_size=size + 1)


def test_seeds_have_one_batch_size(tmp_path: Path) -> None:
    one = prepared(table(tmp_path, 301), "property", seeds=3)
    assert len({stage.batch_size for stage in one.prepared.stages}) == 1


def test_a_batch_that_cannot_hold_the_question_is_refused_with_a_way(tmp_path: Path) -> None:
    path = table(tmp_path, 120)
    with pytest.raises(InputError, match=r"allow batches of .*, not the default 128") as said:
        prepared(path, "proportion")
    assert "--ratio-bins" in str(said.value)
    assert batch_of(prepared(path, "proportion", ratio_bins=2)) < 128


@pytest.mark.parametrize("records", [90, 300])
def test_all_asks_what_a_small_table_allows(tmp_path: Path, records: int) -> None:
    path = table(tmp_path, records)
    options: Mapping[str, object] = {"data": str(path), "label": "label", "secret": "sex"}
    request = AuditRequest(asks=[ALL], options=options)
    first = next(iter(asked_of(AuditRequest(options=options), questions()).values()))
    _, ready, reasons = all_allowed(request, questions(), source_of(first[1]))
    assert {"layers", "timeline"} <= set(ready)
    assert not [why for why in reasons.values() if "lower --batch-size" in why]
