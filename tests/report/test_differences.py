"""Two audits side by side: which figures meet, what the verdicts say, and the page."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leakgauge.core.checks import InputError
from leakgauge.inference.metrics import METRICS
from leakgauge.report.differences.audited import Audited
from leakgauge.report.differences.compared import Differences, compare_audits
from leakgauge.report.differences.difference import INVALID, LESS, LOWER, MORE, SAME, UNSEEN
from leakgauge.results.measurements import HEADLINE, Estimate, Measurement
from leakgauge.results.scores import smallest_detectable
from leakgauge.results.statistics import difference
from support.made_runs import DEFENSES, HOSTILE, defended, make_records
from support.pages import SCREENS, drawn, opened

PRUNE, SIGN, DPSGD = "prune:rate=0.99", "sign", "dpsgd:clip=2,noise=0.1"


def side(measured: list[Measurement], name: str = "a", **more: Any) -> Audited:
    settings = {"inference": {"seeds": 1, "rounds": 5, **more.pop("settings", {})}}
    data = {"name": "adult", "fingerprint": "9f2c"}
    return replace(Audited(name, {"inference": measured}, settings, data=data), **more)


def compared(one: Audited, other: Audited, **more: Any) -> Differences:
    return compare_audits(one, other, {"inference": METRICS}, **more)


def measured(*names: str) -> list[Measurement]:
    return defended({name: DEFENSES[name] for name in names})


def main(found: Differences) -> list[tuple[str, str, str, str]]:
    return [(one.who, one.defenses, one.after.metric, one.verdict) for one in found.main]


def test_a_defense_stands_beside_the_undefended_run_as_an_adaptive_adversary_sees_it() -> None:
    found = compared(side(measured("none")), side(measured("none", DPSGD)))
    assert main(found) == [
        ("forest", f"no defense → {DPSGD}", "auroc", LESS),
        ("logistic", f"no defense → {DPSGD}", "auroc", LESS),
        ("", f"no defense → {DPSGD}", "accuracy", LOWER),
    ]
    first = found.main[0]
    assert (first.before.knowledge, first.after.knowledge) == ("static", "adaptive")
    assert first.estimate == difference(first.before.estimate, first.after.estimate)
    assert first.smallest == smallest_detectable(first.estimate, 0.0)
    static = [one for one in found.rows if one.after.knowledge == "static" and not one.control]
    assert {one.main for one in static if not one.metric.of_model} == {False}


def test_the_answer_stands_on_the_stronger_adversary() -> None:
    """Where the unaware adversary finds more, the defense is worth what that one leaves."""
    after = defended({"none": (0.85, 3.9, None), "prune": (0.83, 2.9, 0.5)})
    found = compared(side(measured("none")), side(after))
    assert {one.after.knowledge for one in found.leakage if one.main} == {"static"}


def test_a_figure_that_rises_leaks_more_and_one_within_the_interval_shows_no_difference() -> None:
    pairs = [(1.0, 2.0, MORE), (2.0, 1.0, LESS), (1.0, 1.02, UNSEEN)]
    for one, other, verdict in pairs:
        found = compared(side(make_records(one, 0.02)), side(make_records(other, 0.02)))
        assert found.leakage[0].verdict == verdict


def test_a_figure_below_chance_is_no_protection() -> None:
    found = compared(side(make_records(1.0, 0.02)), side(make_records(-0.6, 0.02)))
    assert found.leakage[0].verdict == INVALID


def test_the_same_run_differs_by_exactly_0() -> None:
    one = side(measured("none", PRUNE), identities={"inference": "1f"})
    found = compared(one, one)
    assert {one.verdict for one in found.rows} == {SAME}
    assert {(r.estimate.value, r.estimate.low, r.estimate.high) for r in found.rows} == {(0, 0, 0)}
    assert len(found.notes) == 1
    assert found.only == ()


def test_equal_figures_of_another_run_hold_0_with_an_interval() -> None:
    found = compared(side(measured("none", PRUNE)), side(measured("none", PRUNE)))
    assert {one.verdict for one in found.main} == {UNSEEN}
    for one in found.rows:
        if one.verdict != INVALID:
            assert one.estimate.low < 0 == one.estimate.value < one.estimate.high


def test_a_defense_of_both_audits_is_compared_with_itself() -> None:
    found = compared(side(measured("none", PRUNE)), side(measured("none", PRUNE, SIGN)))
    shown = {one.defenses for one in found.main}
    assert shown == {f"under {PRUNE}", f"no defense → {SIGN}", "without a defense"}


def test_removed_defenses_are_compared_with_none_and_the_undefended_runs_show_the_rest() -> None:
    found = compared(side(measured("none", PRUNE, SIGN)), side(measured("none")))
    assert {one.defenses for one in found.main} == {f"{PRUNE} → no defense", f"{SIGN} → no defense"}
    assert {one.defenses for one in found.rows if one.control} == {"without a defense"}
    assert found.only == ()


def test_the_user_chooses_both_defenses() -> None:
    one, other = side(measured("none", PRUNE)), side(measured("none", PRUNE, SIGN))
    found = compared(one, other, defenses=[SIGN], against=PRUNE)
    assert {each.defenses for each in found.main} == {f"{PRUNE} → {SIGN}"}
    assert any(PRUNE in line and "--defense" in line for line in found.only)
    with pytest.raises(InputError, match=r"second audit \(a\) has no defense 'sing'.*'sign'"):
        compared(one, other, defenses=["sing"])
    with pytest.raises(InputError, match=r"first audit \(a\) has no defense 'sign'"):
        compared(one, other, against=SIGN)


def test_other_settings_without_a_defense_are_a_warning() -> None:
    other = [*make_records(2.0, 0.02), *measured(PRUNE)]
    found = compared(side(measured("none")), side(other, settings={"rounds": 6}))
    assert any("differ without a defense too" in line for line in found.warnings)
    assert [(one.name, one.before, one.after) for one in found.changed] == [("rounds", "5", "6")]
    quiet = compared(side(measured("none")), side(measured("none", PRUNE)))
    assert quiet.warnings == ()


def test_other_data_and_another_secret_are_warnings() -> None:
    data = {"name": "adult", "fingerprint": "77aa"}
    found = compared(side(make_records()), side(make_records(secret="race"), data=data))
    assert [("data differ" in line, "secrets" in line) for line in found.warnings] == [
        (True, False),
        (False, True),
    ]
    assert len(found.leakage) == 1


def test_what_one_audit_alone_has_is_named() -> None:
    other = [*make_records(rounds=7), *make_records(adversary="plda", game="attribute")]
    found = compared(side(make_records()), side(other))
    assert "attribute of sex: only after; the other audit did not ask" in found.only
    assert any("8 figures (round 6, 7) only after" in line for line in found.only)
    refused = side(make_records(), missing=["attribute: sex is no feature"])
    assert any("sex is no feature" in line for line in compared(refused, side(other)).only)


def test_headlines_meet_where_shadow_data_chose_another_adversary() -> None:
    def chosen(who: str, shift: float) -> list[Measurement]:
        made = make_records(shift, 0.02, adversary=who)
        return [*made, replace(made[-5], round=HEADLINE)]

    found = compared(side(chosen("forest", 2.0)), side(chosen("plda", 1.0)))
    assert main(found)[0] == ("forest → plda", "without a defense", "auroc", LESS)


def test_a_figure_without_an_interval_is_not_compared() -> None:
    lone = [replace(one, estimate=Estimate(0.5, 0.5, 0.5, 1)) for one in make_records()]
    one = replace(make_records()[-1], metric="r2")
    found = compared(side([*lone, one]), side([*make_records(), one]))
    assert [each.after.metric for each in found.rows] == ["r2"]
    assert any("no interval" in line and "AUROC" in line for line in found.only)


def test_audits_without_a_common_figure_are_refused() -> None:
    with pytest.raises(InputError, match="no figure in common"):
        compared(side(make_records()), side(make_records(game="attribute")))


def test_several_seeds_need_no_word_on_other_trainings() -> None:
    one, other = (side(make_records(shift), settings={"seeds": 3}) for shift in (1.0, 2.0))
    assert not any("--seeds" in line for line in compared(one, other).notes)
    assert any("--seeds" in line for line in compared(side(make_records()), other).notes)


def test_pandas_json_and_text_show_the_same_figures() -> None:
    found = compared(side(measured("none")), side(measured("none", PRUNE)))
    table, plain = found.to_pandas(), found.to_json()["differences"]
    assert table["difference"].tolist() == [one["difference"]["value"] for one in plain]
    assert table["verdict"].tolist() == [one["verdict"] for one in plain]
    assert str(found).count("\n") == 2
    assert found._repr_html_().count("<tr>") == 4


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page whose folder, secret and warning have hostile names."""
    before = side(measured("none"), HOSTILE, repeat=f"leakgauge audit {HOSTILE}")
    found = compared(before, side(measured("none", DPSGD, SIGN), "b", data={"name": HOSTILE}))
    path = tmp_path_factory.mktemp("page") / "differences.html"
    found.to_html(path)
    return path


def test_the_page_fits_its_screens_and_draws_a_chart_a_metric(browser: Any, page: Path) -> None:
    assert drawn(browser, page, *SCREENS) == 2


def test_the_page_shows_verdicts_and_escapes_names(browser: Any, page: Path) -> None:
    shown, trouble = opened(browser, page, "light", 1280)
    text = shown.locator("main").inner_text()
    assert HOSTILE in shown.locator("h1").inner_text()
    for words in (LESS, LOWER, "Read this first", "the data differ", "MOVER"):
        assert words in text
    assert shown.locator("#leakage tbody tr").count() == 4
    assert shown.locator("#utility tbody tr").count() == 2
    assert trouble == []
    shown.close()
