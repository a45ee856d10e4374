"""The words of inference's part of a page: verdicts, rounds, games and defenses."""

import dataclasses
import re
from pathlib import Path

import pytest
from scipy.stats import norm

from leakgauge.core.checks import InputError
from leakgauge.inference.question import QUESTION
from leakgauge.inference.report.best_defense import answer
from leakgauge.inference.report.defenses import defense_tables
from leakgauge.inference.report.titles import adversary_tests
from leakgauge.inference.report.verdict import verdicts
from leakgauge.report.wording import label
from leakgauge.results.measurements import (
    ACCUMULATED,
    Estimate,
    Measurement,
    Run,
)
from leakgauge.runs.question import Answer
from support.made_runs import (
    DEFENSES,
    answered_section,
    defended,
    make_records,
    make_run,
    render,
    said,
    section,
    visible,
)

pytestmark = pytest.mark.usefixtures("blank_charts")


def test_verdict_of_a_leak_says_what_it_means() -> None:
    level, text = said(make_records(3.9))
    assert level == "strong"
    assert text == (
        "Yes: from the gradients of a batch of 16 records in 5 rounds of training the forest "
        "adversary infers `sex`: given one batch of each kind, it names the right one 99.7 % of "
        "the time (95 % interval 99.3 % to 100 %; guessing gives 50 %)."
    )


@pytest.mark.parametrize(
    ("shift", "half", "level"),
    [
        (3.9, 0.004, "strong"),
        (1.1, 0.02, "clear"),
        (0.35, 0.02, "weak"),
        (0.35, 0.2, "inconclusive"),
        (0.0, 0.03, "none"),
        (-0.02, 0.03, "none"),
        (-0.4, 0.02, "below"),
    ],
)
def test_verdict_levels(shift: float, half: float, level: str) -> None:
    assert said(make_records(shift, half))[0] == level


def test_verdict_of_none_found_names_what_it_could_have_seen() -> None:
    level, text = said(make_records(0.0, 0.0392))
    assert level == "none"
    assert text.startswith("The forest adversary finds no leakage of `sex`")
    # 0.5 + (1.96 + 0.84) * 0.0392 / 1.96, with the quantiles at full length
    assert "is an AUROC of 0.556 (with 80 % power)" in text
    assert "a stronger adversary may find more" in text


def test_an_inconclusive_verdict_says_what_would_not_have_been_seen() -> None:
    level, text = said(make_records(0.1, 0.3))
    assert level == "inconclusive"
    assert text.startswith("The forest adversary neither finds nor rules out leakage of `sex`")
    assert "A leak up to an AUROC of 0.828 would not have been seen; " in text
    assert "more trials would not change that: bring more records, or take smaller" in text


def test_the_report_says_how_few_users_enter_the_intervals() -> None:
    records = make_records(1.5, game="user", adversary="plda", secret="actor")
    few = answered_section(make_run(data={"blocks": {"user": 1}}), records)
    told = visible(str(few.html))
    assert "leave out one user at a time (a jackknife)" in told
    assert "disjoint blocks." not in told
    both = answered_section(make_run(data={"blocks": {"user": 1, "property": 125}}), records)
    assert "cut into 125 disjoint blocks" in visible(str(both.html))
    many = visible(str(answered_section(make_run(data={"blocks": {"user": 9}}), records).html))
    assert "cut into 9 disjoint blocks" in many
    assert "jackknife" not in many
    drawn = answered_section(make_run(data={"blocks": {"property": 1}}), records)
    told = visible(str(drawn.html))
    assert "leave out one record at a time" in told
    assert "disjoint blocks" not in told


@pytest.mark.parametrize(
    ("adversary", "ours"), [("plda", True), ("pca-encoder:codes=8", True), ("encoder", False)]
)
def test_the_report_says_who_is_not_the_papers_adversary(adversary: str, *, ours: bool) -> None:
    records = make_records(1.5, game="user", adversary=adversary, secret="actor")
    told = " ".join(visible(str(answered_section(make_run(), records).html)).split())
    said = f"{adversary.partition(':')[0]} is not from Li et al.; --adversary encoder is."
    assert (said in told) == ours


def test_words_do_not_contradict_one_another() -> None:
    """A success significantly above guessing with an AUROC that is not, and a summary."""
    records = make_records(0.0, 0.03)
    high = Estimate(0.55, 0.52, 0.58, 2000)
    records = [
        dataclasses.replace(r, estimate=high) if r.metric == "success" else r for r in records
    ]
    run = make_run()
    made = answered_section(run, records)
    assert made.rows[0].verdict == "No leakage found"
    told = [visible(str(made.html)), *(line.text for line in made.lines)]
    assert not any("implies" in text for text in told)
    assert QUESTION.to_json(Answer(run, records), Path())["cells"][0]["bounds"] == {
        "information_nats": None, "certificate": None, "text": "",
    }  # fmt: skip


def test_verdict_below_chance_is_no_evidence_of_privacy() -> None:
    level, text = said(make_records(-0.4, 0.02))
    assert level == "below"
    assert "shifted between the shadow and the private data" in text
    assert "this does not show privacy" in text


def test_verdict_of_many_values_is_worded_as_macro() -> None:
    run = make_run(data={"secret_values": {"a": 3, "b": 4, "c": 5}})
    text = said(make_records(1.5), run)[1]
    assert "with a given value and one with another value" in text
    assert "macro AUROC, each value against the rest" in text
    assert "each kind" not in text


def test_verdict_names_defense_and_fresh_batches() -> None:
    run = make_run(settings={"batches": "fresh"})
    text = said(make_records(1.5, defense="sign"), run)[1]
    assert "5 batches of 16 records, one a round" in text
    assert "unaware of the defense `sign`" in text


def test_verdict_without_accumulated_takes_the_last_round() -> None:
    records = [r for r in make_records(1.5, rounds=3) if r.round != ACCUMULATED]
    last = next(r for r in records if r.metric == "auroc" and r.round == 3)
    assert verdicts(make_run(), records)[0].auroc == last.estimate


def test_page_holds_every_number_and_setting() -> None:
    run, records = make_run(), make_records()
    text = visible(render(run, records))
    for record in records[:-1]:
        for value in (record.estimate.value, record.estimate.low, record.estimate.high):
            assert f"{value:.3f}".replace("-", "\u2212") in text
    for key in run.settings:
        assert label(key) in text
    wanted = ("85.1 %", "75.2 %", "45,222", "14,695", "125 disjoint blocks", "9f2c" * 16, "2.13.0")
    for word in (*wanted, *run.notes, "Forest(trees=200, depth=12)", "strong from an AUROC of 0.9"):
        assert word in text


def test_a_bare_run_still_has_a_page() -> None:
    records = [
        dataclasses.replace(record, curve=None, details={})
        for record in make_records(rounds=1)
        if record.metric in ("auroc", "success")
    ]
    text = visible(render(Run("audit", {}, {}), records))
    assert "a batch of records" in text
    assert "not set" not in text


def test_the_sum_of_the_rounds_so_far_is_drawn_and_described() -> None:
    records = make_records(rounds=4)
    first = [
        dataclasses.replace(record, round=f"first-{count}", curve=None)
        for record in records
        if record.round == "accumulated"
        for count in (2, 3)
    ]
    (test,) = adversary_tests([*records, *first])
    assert [count for count, _ in test.added_up("auroc")] == [1, 2, 3, 4]
    without, page = render(make_run(), records), render(make_run(), [*records, *first])
    for words in ("First 3 rounds", "plain sum of the rounds so far"):
        assert words in visible(page)
        assert words not in visible(without)
    told = Answer(make_run(), [*records, *first])
    (cell,) = QUESTION.to_json(told, Path())["cells"]
    assert [one["rounds"] for one in cell["first_rounds"]] == [2, 3]


def test_each_game_has_its_own_batch_size() -> None:
    run = make_run(settings={"batch_size": {"property": 16, "proportion": 128}, "ask": []})
    records = [*make_records(), *make_records(game="proportion")]
    text = visible(render(run, records))
    for game, size in (("property", 16), ("proportion", 128)):
        assert f"of {size} records in 5 rounds of training the forest" in text, game
    assert "each of a batch of 16 (property) or 128 (proportion) records" in text


def test_a_model_that_learnt_nothing_is_named() -> None:
    *rest, accuracy = make_records()
    dull = dataclasses.replace(accuracy, estimate=Estimate(0.755, 0.745, 0.765, 9000))
    assert "this run does not show that the model learned more than that" in visible(
        render(make_run(), [*rest, dull])
    )


def test_the_auroc_of_the_task_is_shown_with_the_accuracy() -> None:
    *rest, accuracy = make_records()
    ranked = dataclasses.replace(
        accuracy, metric="task_auroc", estimate=Estimate(0.903, 0.896, 0.91, 9000), chance=0.5
    )
    text = visible(render(make_run(), [*rest, accuracy, ranked]))
    assert "The AUROC of its outputs is 0.903 (0.896 to 0.910)." in text
    assert "85.1 %" in text
    told = QUESTION.to_json(Answer(make_run(), [*rest, accuracy, ranked]), Path())
    assert set(told["cells"][0]["utility"]) == {"accuracy", "task_auroc"}


def test_the_same_figure_twice_is_refused() -> None:
    with pytest.raises(InputError, match="two measurements hold auroc, round 1"):
        render(make_run(), make_records() + make_records())


def test_a_run_without_measurements_says_what_is_missing() -> None:
    answer = Answer(make_run(), [], missing=("property: too few records",))
    made = QUESTION.section(answer, Path())
    assert "No test of this run has an AUROC" in visible(made.html)
    first, second = made.rows
    assert (first.ask, first.level, first.text) == (
        "property", "unknown", "property: too few records",
    )  # fmt: skip
    assert second.text == "None of its tests has an AUROC."


def test_details_that_differ_between_rounds_are_shown_by_round() -> None:
    records = [
        dataclasses.replace(r, adversary="mine", details={"adversary": f"picked number {r.round}"})
        for r in make_records(rounds=3)
        if r.metric != "accuracy"
    ]
    text = visible(render(make_run(), records))
    for when in (1, 2, 3, ACCUMULATED):
        assert f"picked number {when}" in text


def test_every_game_has_its_utility() -> None:
    text = visible(render(make_run(), make_records() + make_records(game="attribute")))
    assert text.count("85.1 %") == 2


def test_a_defense_that_does_not_help_is_not_praised() -> None:
    text = answered({"none": (0.85, 2.0, None), "sign": (0.85, 0.0, 2.1)})
    assert text.startswith("No defense lowers the AUROC of the strongest adversary")
    text = answered({"none": (0.85, 2.0, None), "sign": (0.849, 0.0, 1.95)})
    assert text.startswith("`sign` most lowers")
    assert ". The intervals overlap, so this may" in text
    assert "a cost of 0.1 percentage points, within the intervals" in text


def test_a_defense_is_worth_what_the_stronger_adversary_leaves() -> None:
    """The static adversary is the stronger one under `a`, so that `b` protects more."""
    text = answered({"none": (0.85, 3.9, None), "a": (0.84, 2.5, 0.5), "b": (0.83, 0.1, 1.5)})
    strong, weak = (float(norm.cdf(shift / 2**0.5)) for shift in (2.5, 1.5))
    assert text.startswith("`b` most lowers the AUROC of the strongest adversary: from 0.997")
    assert f"to {weak:.3f} (" in text
    text = answered({"none": (0.85, 3.9, None), "a": (0.84, 2.5, 0.5)})
    assert f"to {strong:.3f} (" in text
    assert "forest, unaware of the defense)" in text


def test_a_tie_and_a_worthless_model_are_named() -> None:
    bare = ("none", (0.85, 2.0, None))
    text = answered(dict([bare, ("a", (0.84, 0.0, 0.5)), ("b", (0.755, 0.0, 0.49))]))
    assert "overlaps with that of `a`: the run does not decide between these" in text
    assert "and the model does not provably beat always naming the most frequent class" in text


def test_a_defense_without_a_valid_adaptive_adversary_is_not_compared() -> None:
    text = answered({"none": (0.85, 2.0, None), "a": (0.85, 0.0, None), "b": (0.8, 0.0, -0.9)})
    assert text == (
        "This run does not show that any defense protects. Not compared: `a` (no adaptive "
        "adversary was tried); `b` (its adversaries did worse than guessing, so the test does not "
        "count)."
    )


def test_defenses_may_lack_the_undefended_test_and_accuracies() -> None:
    assert "an undefended test for comparison is missing" in answered({"a": (0.85, 0.0, 1.0)})
    two = {name: DEFENSES[name] for name in ("none", "sign")}
    bare = [r for r in defended(two) if r.metric != "accuracy"]
    found = section(render(make_run(), bare))
    assert "<svg" not in found
    assert "what it costs in utility was not measured" in visible(found)
    both = by_forest("none", "prune:rate=0.99", "sign")
    partly = [r for r in both if r.metric != "accuracy" or r.defense != "sign"]
    assert "and so not drawn: sign" in " ".join(
        visible(section(render(make_run(), partly))).split()
    )


def test_the_panel_stands_for_members_that_it_chose_under_a_defense_alone() -> None:
    """Before, the undefended figure was "missing", as it lacked a member of the defended panel."""
    names = {"logistic": "panel", "forest": "discriminant"}
    made = [
        dataclasses.replace(one, adversary=names.get(one.adversary, one.adversary))
        for one in defended({"none": (0.85, 2.0, None), "sign": (0.85, 0.5, 1.0)})
        if (one.adversary, one.defense) != ("forest", "none")
    ]
    text = answer(defense_tables(adversary_tests(made), made)[0])
    assert text.startswith("`sign` most lowers the AUROC of the strongest adversary: from")
    assert "Not compared" not in text


def by_forest(*names: str) -> list[Measurement]:
    """Return the measurements of one adversary: each test draws three charts."""
    made = defended({name: DEFENSES[name] for name in names})
    return [record for record in made if record.adversary != "logistic"]


def answered(defenses: dict[str, tuple[float, float, float | None]]) -> str:
    records = defended(defenses)
    return answer(defense_tables(adversary_tests(records), records)[0])


def test_a_section_without_defenses_has_no_trace_of_them() -> None:
    for records in (make_records(), [r for r in defended() if r.defense == "none"]):
        made = answered_section(make_run(), records)
        body = str(made.html).replace("<dt>Defense</dt><dd>none</dd>", "")
        assert "efense" not in body
        assert made.effect is None
        assert re.findall(r'<section id="inference-(\w+)"', body) == [
            *("verdict", "figures", "adversary", "utility", "data")
        ]


@pytest.mark.parametrize(
    ("knowledge", "words"),
    [
        (
            "static",
            "shifted between the gradients that a static adversary learned from and those",
        ),
        ("adaptive", "shifted between the defended gradients that the adversary learned from"),
    ],
)
def test_verdict_below_chance_under_a_defense(knowledge: str, words: str) -> None:
    level, text = said(make_records(-0.6, 0.02, defense="sign", knowledge=knowledge))
    assert level == "below"
    assert words in text
    assert "this does not show privacy" in text
