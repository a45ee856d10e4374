"""The rules of ``leakgauge promise --fail-if``, in the notation of all commands."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.text import Text

from leakgauge.cli.gating import wide_console
from leakgauge.core.checks import require

if TYPE_CHECKING:
    from leakgauge.evidence.rule import FailRule
    from leakgauge.integrations.filter_promises import FilterPromise

SENT, PUBLISHED, EPSILON = "sent", "published", "epsilon"


@dataclass(frozen=True)
class PromiseOutcome:
    """What a rule says of a configuration.

    Attributes:
        rule: the rule.
        value: the epsilon that it compares; infinite without differential privacy.
    """

    rule: "FailRule"
    value: float

    @property
    def fails(self) -> bool:
        """Whether the rule ends the command with exit code 3."""
        return self.rule.holds(self.value)

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values; an infinite epsilon is null."""
        value = self.value if math.isfinite(self.value) else None
        return {"rule": self.rule.text, "epsilon": value, "fails": self.fails}


def read_rules(texts: Iterable[str]) -> list["FailRule"]:
    """Return the rules of ``--fail-if``.

    Raises:
        InputError: a rule has another form, is about another figure, or fails where the epsilon is
            small.

    >>> [(one.owner, one.threshold) for one in read_rules(["published.epsilon > 8"])]
    [('published', 8.0)]
    """
    from leakgauge.evidence.rule import parse_rule

    rules = [parse_rule(text) for text in texts]
    for one in rules:
        figure = one.metric == EPSILON and one.owner in ("", SENT, PUBLISHED)
        figure = figure and not one.end and not one.side
        require(
            figure,
            f"--fail-if is {one.text!r}; expected epsilon or {PUBLISHED}.epsilon, as in "
            "'epsilon > 8'",
        )
        require(
            one.upward,
            f"--fail-if is {one.text!r}: a larger epsilon is worse; write > in its place",
        )
    return rules


def outcomes_of(
    rules: Iterable["FailRule"], promises: Sequence["FilterPromise"], scopes: Sequence[str]
) -> list[PromiseOutcome]:
    """Return what each rule says of the filters of a configuration."""
    from leakgauge.integrations.filter_promises import epsilon_kept

    outcomes = []
    for rule in rules:
        kept = epsilon_kept(promises, scopes, published=rule.owner == PUBLISHED)
        outcomes.append(PromiseOutcome(rule, math.inf if kept is None else kept.epsilon))
    return outcomes


def print_outcomes(outcomes: Iterable[PromiseOutcome]) -> None:
    """Print one line a rule: whether it fails, and the epsilon that it compares."""
    from leakgauge.defenses.doubts import large

    console = wide_console()
    for one in outcomes:
        word, style = ("fail", "bold red") if one.fails else ("pass", "green")
        text = f"gate: {word} ({one.rule.text}): the epsilon is {large(one.value)}"
        console.print(Text(text, style=style), soft_wrap=True)
