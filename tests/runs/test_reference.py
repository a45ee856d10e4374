"""Where a figure stands among reference audits, and the causes that are known."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from leakgauge.report.section import Cause, Level, Row, Section
from leakgauge.results.measurements import Estimate
from leakgauge.runs import reference
from leakgauge.runs.reference import (
    IMBALANCE,
    ONE_RECORD,
    OVERFITTING,
    ReferenceAudit,
    ReferenceFigure,
    causes_of,
    reference_audits,
    standing,
    with_standing,
)
from support import command
from support.sources import people


def row(value: float, low: float, high: float, **named) -> Row:
    estimate = Estimate(value, low, high, 100)
    return Row("property", "Weak", "weak", "", metric="AUROC", estimate=estimate, **named)


def figure(metric: str, value: float, chance: float | None = None, defense: str = "none"):
    estimate = Estimate(value, value, value, 100)
    return SimpleNamespace(metric=metric, estimate=estimate, chance=chance, defense=defense)


def answer(*figures, settings=None, data=None):
    run = SimpleNamespace(settings=settings or {}, data=data or {})
    return SimpleNamespace(measurements=list(figures), run=run)


def test_the_place_counts_smaller_figures_at_both_ends_of_the_interval() -> None:
    values = [0.5 + 0.01 * at for at in range(30)]
    place = standing(row(0.655, 0.6, 0.735), values)
    assert place is not None
    assert (place.above, place.low, place.high, place.of) == (16, 10, 24, 30)
    assert standing(row(0.6, 0.5, 0.7), values[:9]) is None, "nine audits are too few"
    lowest = standing(row(0.4, 0.3, 0.45), values)
    assert lowest is not None
    assert lowest.words == "higher than in none of 30 reference audits of tables"
    full = standing(row(1.0, 0.6, 1.0), [1.0] * 12)
    assert full is not None
    assert full.words == "the same as in all of 12 reference audits of tables"
    most = standing(row(0.79, 0.795, 0.795), values)
    assert most is not None
    assert (most.above, most.equal) == (29, 1)
    assert most.words.endswith("reference audits of tables, and the same as in 1")
    open_end = standing(replace(row(0.655, 0.6, 9.0), open_end=True), values)
    assert open_end is not None
    assert open_end.high == 16, "an interval without an upper end has no place there"


def test_causes_are_those_that_the_figures_show() -> None:
    fitted = answer(figure("train_accuracy", 0.98), figure("accuracy", 0.7, 0.95))
    assert set(causes_of(fitted)) == {OVERFITTING}
    assert "98 %" in causes_of(fitted)[OVERFITTING]
    assert causes_of(answer(figure("train_accuracy", 0.75), figure("accuracy", 0.7))) == {}
    alone = answer(figure("accuracy", 0.95, 0.93), settings={"batch_size": 1})
    assert set(causes_of(alone)) == {ONE_RECORD, IMBALANCE}
    assert causes_of(answer(figure("accuracy", 0.95, 0.93, "prune"))) == {}, "under a defense"


def audits(count: int) -> tuple[ReferenceAudit, ...]:
    return tuple(
        ReferenceAudit(
            data=f"table {at}",
            fingerprint=str(at),
            label="y",
            secret="s",
            records=100,
            columns=3,
            figures=(
                ReferenceFigure(
                    ask="property",
                    metric="AUROC",
                    value=at / count,
                    causes=(ONE_RECORD,) if at % 2 else (),
                ),
            ),
        )
        for at in range(count)
    )


def placed(
    monkeypatch: pytest.MonkeyPatch, data: dict, fingerprint: str, level: Level = "weak"
) -> Row:
    monkeypatch.setattr(reference, "reference_audits", lambda: audits(20))
    one = replace(row(0.52, 0.31, 0.71), level=level)
    section = Section("one", "One", "", [one])  # type: ignore[arg-type]
    run = SimpleNamespace(
        answers={"one": answer(settings={"batch_size": 1}, data=data)},
        description=SimpleNamespace(data={"fingerprint": fingerprint}),
    )
    ((found,),) = [one.rows for one in with_standing([section], run)]  # type: ignore[arg-type]
    return found


def test_a_table_is_not_compared_with_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    other = placed(monkeypatch, {"columns": 3}, "another")
    assert other.standing is not None
    assert (other.standing.above, other.standing.of) == (11, 20)
    assert other.causes == (Cause(ONE_RECORD, "a batch is one record", 10),)
    assert other.context == (
        "The figure is higher than in 11 of 20 reference audits of tables (7 to 15 over its "
        "interval). "
        "Known cause: a batch is one record, as in 10 of them."
    )
    same = placed(monkeypatch, {"columns": 3}, "3")
    assert same.standing is not None
    assert (same.standing.above, same.standing.of) == (10, 19)
    images = placed(monkeypatch, {}, "another")
    assert images.standing is None
    assert images.context == "Known cause: a batch is one record."


@pytest.mark.parametrize("level", ["none", "inconclusive", "unknown"])
def test_where_nothing_was_found_no_cause_is_named(
    monkeypatch: pytest.MonkeyPatch, level: Level
) -> None:
    found = placed(monkeypatch, {"columns": 3}, "another", level)
    assert found.causes == ()
    assert found.standing is not None


def test_the_reference_audits_are_complete() -> None:
    found = reference_audits()
    assert len(found) == 30
    assert len({one.fingerprint for one in found}) == 30
    for one in found:
        assert {each.ask for each in one.figures} == {
            "property",
            "attribute",
            "membership",
            "reconstruction",
        }, one.data
        assert all(0 <= each.value <= 1 for each in one.figures)


def test_a_report_says_where_its_figure_stands(tmp_path: Path) -> None:
    table = tmp_path / "people.csv"
    people(300).to_csv(table, index=False)
    words = ("audit", table, "--label", "income", "--secret", "sex", "--ask", "property")
    few = ("--trials", 200, "--adversary", "energies", "--set", "inference.rounds=1")
    ended = command.run(*words, *few, "--out", tmp_path / "run", "--json")
    assert ended.returncode == 0, ended.stderr
    (summary,) = json.loads(ended.stdout)["summary"]
    assert summary["reference"]["of"] == 30
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "reference audits of tables" in page
