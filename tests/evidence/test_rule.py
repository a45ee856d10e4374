"""Rules as users write them: what they say, and which are refused."""

import pytest

from leakgauge.catalog import questions
from leakgauge.core.checks import InputError
from leakgauge.evidence.rule import FailRule, check_rules, parse_rule

GOOD = {
    "advantage > 0.05": ("", "advantage", "high", ">", 0.05),
    "advantage.high > 0.05": ("", "advantage", "high", ">", 0.05),
    "membership.advantage.high>=5e-2": ("membership", "advantage", "high", ">=", 0.05),
    "  property.auroc  >  .6 ": ("property", "auroc", "high", ">", 0.6),
    "accuracy < 0.8": ("", "accuracy", "low", "<", 0.8),
    "lpips <= 0.1": ("", "lpips", "low", "<=", 0.1),
    "auroc.value > 0.6": ("", "auroc", "value", ">", 0.6),
    "timeline.information > -1": ("timeline", "information", "high", ">", -1.0),
    "inference-2.auroc > 0.6": ("inference-2", "auroc", "high", ">", 0.6),
}
BAD_FORM = {
    "": "expected METRIC OP NUMBER",
    "advantage": "expected METRIC OP NUMBER",
    "advantage > ": "'' is not a number",
    "0.05 < advantage < 0.1": "expected METRIC OP NUMBER",
    "advantage = 0.05": "'=' is not a comparison",
    "advantage != 0.05": "'!=' is not a comparison",
    "advantage > five": "'five' is not a number",
    "advantage > nan": "not finite",
    "advantage > inf": "not finite",
    "membership.advantage.hihg > 0.05": "did you mean 'high'?",
    "a.b.c.high > 1": "no end 'c'",
    "a b > 1": "is not a figure",
}
BAD_MEANING = {
    "advantge > 0.05": "no metric 'advantge'; did you mean 'advantage'?",
    "advantage.hgh > 0.05": "no end 'hgh'; did you mean 'high'?",
    "membershp.advantage > 0.05": "no question 'membershp'; did you mean 'membership'?",
    "guarantee.epsilon > 1": "guarantee is not asked; add --ask guarantee",
    "epsilon > 1": "no question of this run measures 'epsilon'; add --ask guarantee",
    "membership.psnr > 1": "no metric 'psnr'",
    "advantage < 0.05": "write '>', or name the end (advantage.low)",
    "advantage > 5": "can never fail, since advantage lies from 0 to 1",
    "advantage > 1": "can never fail",
    "auroc.low < 0": "can never fail",
    "accuracy > 0.8": "write '<', or name the end (accuracy.high)",
}
FINE = ["advantage.low < 0.9", "membership.auroc > 0.6", "property.auroc > 0.6", "accuracy < 0.5"]


def parts(rule: FailRule) -> tuple[str, str, str, str, float]:
    return rule.owner, rule.metric, rule.compared, rule.operator, rule.threshold


@pytest.mark.parametrize("text", GOOD)
def test_a_rule_says(text: str) -> None:
    assert parts(parse_rule(text)) == GOOD[text]


@pytest.mark.parametrize("text", BAD_FORM)
def test_another_form_is_refused(text: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_rule(text)
    assert BAD_FORM[text] in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("operator", "holds"),
    [(">", (False, False, True)), (">=", (False, True, True)),
     ("<", (True, False, False)), ("<=", (True, True, False))],
)  # fmt: skip
def test_operators_at_the_threshold(operator: str, holds: tuple[bool, ...]) -> None:
    rule = parse_rule(f"auroc {operator} 0.6")
    assert tuple(rule.holds(value) for value in (0.5, 0.6, 0.7)) == holds


def asked() -> list:
    return [questions()["inference"], questions()["membership"]]


@pytest.mark.parametrize("text", BAD_MEANING)
def test_a_rule_about_nothing_is_refused(text: str) -> None:
    with pytest.raises(InputError) as refused:
        check_rules([parse_rule(text)], asked(), questions())
    assert BAD_MEANING[text] in str(refused.value)


@pytest.mark.parametrize("text", FINE)
def test_a_rule_about_what_is_asked_is_fine(text: str) -> None:
    check_rules([parse_rule(text)], asked(), questions())
