"""Large and wide tables: nothing is read, encoded or compared more often than it is used."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from leakgauge.data import Roles, encode, make_table, number_texts, read_table, text_parsing
from leakgauge.data import encoding as encoding_module
from leakgauge.data import proxies as proxies_module
from leakgauge.data.columns import kind_of
from leakgauge.data.number_texts import FRACTIONS, INTEGERS, WHOLE, in_one_form
from leakgauge.data.proxies import column_auroc
from leakgauge.data.written import is_written
from leakgauge.results.roc import auroc
from leakgauge.runs.records import records_of


def table(rows: int, columns: int = 6) -> pd.DataFrame:
    rng = np.random.default_rng(rows)
    frame = pd.DataFrame({f"x{at}": rng.normal(size=rows).round(3) for at in range(columns)})
    frame["town"] = rng.choice(["a", "b", "c"], rows)
    frame["sex"] = rng.choice(["f", "m"], rows)
    frame["ill"] = rng.integers(2, size=rows)
    return frame


def columns_of_all_kinds(rows: int) -> dict[str, list[str]]:
    """Columns whose type shows in their last rows only, and plain ones."""
    number = [str(at % 50) for at in range(rows)]
    last = rows - 3
    return {
        "whole": number,
        "word at the end": [*number[:last], "many", "few", "many"],
        "fraction at the end": [*number[:last], "1.5", "2.25", "7"],
        "missing at the end": [*number[:last], "", "NA", ""],
        "missing first": ["", "", "", *number[3:]],
        "padded at the end": [*number[:last], "07", "7", "7"],
        "closing zero": [*["1.1"] * last, "1.10", "1.2", "1.3"],
        "signed zero": [*["0.5", "-0.0"] * (last // 2), *["0.0"] * (rows - last // 2 * 2)],
        "huge at the end": [*number[:last], "9007199254740993", "9007199254740992", "1"],
        "truth": [*["True", "False"] * (last // 2), *[""] * (rows - last // 2 * 2)],
        "truth and number": [*["True"] * last, "1", "0", "1"],
        "text": [*["a", "b"] * (rows // 2), *["c"] * (rows % 2)],
    }


@pytest.mark.parametrize("rows", [101, 70_000])
def test_a_long_text_gives_the_table_of_a_short_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """pandas parses 65,536 rows of 12 columns at once, so 70,000 come in two parts."""
    held = columns_of_all_kinds(rows)
    lines = [",".join(held), *(",".join(one) for one in zip(*held.values(), strict=True))]
    path = tmp_path / "table.csv"
    path.write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(number_texts, "_FORMS", {})  # each column takes the long way
    short = read_table(path)
    monkeypatch.undo()
    monkeypatch.setattr(text_parsing, "LONG", 0)
    found = read_table(path)
    pd.testing.assert_frame_equal(found, short)
    kinds = {name: (is_written(found[name]), kind_of(found[name])) for name in found}
    assert kinds["padded at the end"] == kinds["closing zero"] == (True, "number")
    assert kinds["signed zero"] == (False, "number")
    assert kinds["word at the end"] == (True, "number")  # a few words are missing numbers


@pytest.mark.parametrize(
    ("texts", "kind", "holds"),
    [
        (["1", "2", "10"], INTEGERS, True),
        (["1", "01"], INTEGERS, False),
        (["1", "+1"], INTEGERS, False),
        (["0", "-0"], WHOLE, False),
        (["1.50", "1.25", ""], FRACTIONS, True),
        (["1.50", "1.5"], FRACTIONS, False),
        (["2.0", "1.5"], FRACTIONS, True),
        (["2.0", "1.5", "2"], FRACTIONS, False),
        (["2", "1.5"], FRACTIONS, True),
        (["0.0", "-0.0", "0.5"], FRACTIONS, True),
        (["1e2", "100"], WHOLE, False),
        (["0.1234567890123456", "0.12345678901234560"], FRACTIONS, False),
        (["123456789012345678", "1"], INTEGERS, True),
        (["123456789012345678", "1"], WHOLE, False),
    ],
)
def test_one_form_is_one_to_one(texts: list[str], kind: str, holds: bool) -> None:
    """Where a form is found, no two texts are one number, by float and int themselves."""
    content = ("a,b\n" + "".join(f'{one},"x\ny"\n' for one in texts)).encode()
    assert in_one_form(content, ",", {0: kind}) == ({0} if holds else set())
    if holds:
        known = {one.removeprefix("-") if one == "-0.0" else one for one in texts if one}
        read = int if kind == INTEGERS else float
        assert len({read(one) for one in known}) == len(known)


def test_rows_of_different_lengths_take_the_long_way() -> None:
    assert in_one_form(b"a,b\n1,2\n3\n", ",", {0: INTEGERS}) == set()


def test_only_the_rows_in_use_are_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_table(table(5000), Roles("ill", ("sex",)))
    fit_on, only = torch.arange(100), torch.arange(0, 300, 2)
    whole = encode(made, fit_on=fit_on, keep=("sex",))
    seen: list[int] = []
    encoded = encoding_module._encoded

    def counted(values, column, dtype):  # type: ignore[no-untyped-def]
        seen.append(len(values))
        return encoded(values, column, dtype)

    monkeypatch.setattr(encoding_module, "_encoded", counted)
    part = encode(made, fit_on=fit_on, keep=("sex",), only=only)
    assert set(seen) == {150}
    assert torch.equal(part.x, whole.x[only])
    assert torch.equal(part.y, whole.y[only])
    assert torch.equal(part.secrets["sex"], whole.secrets["sex"][only])
    assert part.schema == whole.schema


def test_a_run_encodes_the_records_of_its_split_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from leakgauge.data.source import frame_source
    from leakgauge.inference.run import preparing
    from leakgauge.inference.spec import InferenceSpec

    seen: list[int] = []

    def noted(*args, **settings):  # type: ignore[no-untyped-def]
        records = records_of(*args, **settings)
        original = records.encode

        def encoded(fit_on, keep, only=None):  # type: ignore[no-untyped-def]
            task, data = original(fit_on, keep, only)
            seen.append(len(data))
            return task, data

        object.__setattr__(records, "encode", encoded)
        return records

    monkeypatch.setattr(preparing, "records_of", noted)
    spec = InferenceSpec(
        label="ill", secret="sex", ask=("property",), private=900, shadow=200, trials=100
    )
    stage = preparing.prepare(spec, frame_source(table(20_000))).stages[0]
    assert seen == [900 + 200 + 4000]
    assert [len(one) for one in (stage.private, stage.public, stage.test)] == [900, 200, 4000]


@pytest.mark.parametrize("columns", [20, 40])
def test_each_column_is_compared_once(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of comparisons grows with the columns, not with their square."""
    calls = {"column_aurocs": 0, "_same_in_users": 0, "_is_identifier": 0}
    for name in calls:
        original = getattr(proxies_module, name)

        def counted(*args, name=name, original=original):  # type: ignore[no-untyped-def]
            calls[name] += 1
            return original(*args)

        monkeypatch.setattr(proxies_module, name, counted)
    make_table(table(500, columns), Roles("ill", ("sex",)))
    assert calls["_is_identifier"] == columns + 1
    assert calls["_same_in_users"] == columns + 1
    assert calls["column_aurocs"] == columns + 3  # the features, the secret, the label


@pytest.mark.parametrize("distinct", [5, 5000])
def test_the_auroc_of_a_column_is_that_of_its_scores(distinct: int) -> None:
    """Counts by group against the ROC of single rows."""
    rng = np.random.default_rng(distinct)
    codes = rng.integers(2, size=3000)
    values = rng.integers(distinct, size=3000) + codes * distinct // 4
    groups = pd.factorize(values)[0]
    inside = np.bincount(groups, weights=codes)[groups] - codes
    share = (inside + codes.mean()) / np.bincount(groups)[groups]
    expected = float(auroc(codes == 1, share if distinct == 5 else values))
    if distinct == 5000:  # the order, or ranges of numbers if they tell more
        ranges = np.unique(values, return_inverse=True)[1] * 117 // len(np.unique(values))
        sizes = np.bincount(ranges)[ranges]
        inside = np.bincount(ranges, weights=codes)[ranges] - codes
        expected = max(expected, float(auroc(codes == 1, (inside + codes.mean()) / sizes)))
    found = column_auroc(pd.Series(values.astype(float)), codes)
    assert found == pytest.approx(expected, abs=1e-12)
    assert 0.5 < found < 1
