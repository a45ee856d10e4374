"""The meaning of the figures in sentences for non-specialist readers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leakgauge.core.knowledge import ADAPTIVE
from leakgauge.membership.metrics import NEEDS, TPR_AT_01_FPR
from leakgauge.membership.report.tests import setting_of
from leakgauge.membership.spec import ASCENT, BOTH, GLOBAL, ISOLATE, PARTS, SECOND
from leakgauge.report.grouping import UNDEFENDED, Test
from leakgauge.report.levels import HEADLINES, level_of, strength_of
from leakgauge.report.section import Level
from leakgauge.report.wording import interval, number, percent, plain
from leakgauge.results.measurements import Estimate
from leakgauge.results.scores import AUROC, TPR_AT_1_FPR, smallest_detectable

_DISTINGUISHES = {
    "members": "members from others",
    "first": "records of the first training from others",
    SECOND: "records of the second training from others",
    PARTS: "records of the first training (members) from those of the second (others)",
}
_DOES = {
    ASCENT: "It raises the loss of targets and known records in each round ({form}).",
    ISOLATE: "It gives each attacked participant its own model back, not the average.",
    BOTH: (
        "It gives each attacked participant its own model back, not the average, and raises the "
        "loss of targets and known records in each round ({form})."
    ),
}


def situation(settings: Mapping[str, Any]) -> str:
    """Return the training and the attacker in sentences; empty for one centrally trained model.

    Args:
        settings: settings of the run.

    >>> situation({"checkpoint": ["a.pt", "b.pt"]})
    'The attacker sees 2 snapshots of a model that existed already.'
    """
    if settings.get("checkpoint"):
        count = len(settings["checkpoint"])
        seen = "a model" if count == 1 else f"{count} snapshots of a model"
        return f"The attacker sees {seen} that existed already."
    if settings.get("participants", 1) > 1:
        return _of_federation(settings)
    return _of_fine_tuning(settings) if settings.get("fine_tune") else ""


def when(settings: Mapping[str, Any]) -> str:
    """Return the unit of the training: epoch, or round of a federation."""
    return "round" if settings.get("participants", 1) > 1 else "epoch"


def _of_federation(settings: Mapping[str, Any]) -> str:
    count = settings["participants"]
    is_global = settings.get("attacker", GLOBAL) == GLOBAL
    who = (
        "The attacker is the server: it sees what each participant uploads, and attacks each by "
        "itself. Figures are means over participants."
        if is_global
        else "The attacker is a participant: it sees the averages alone, and asks whether a record "
        "belongs to another participant."
    )
    does = _DOES.get(settings.get("strategy", ""), "").format(form=settings.get("ascent", ""))
    kept = settings.get("observed")
    rounds = f" It keeps rounds {plain(kept)}." if kept else ""
    return f"FedAvg with {count} participants. {who}{rounds} {does}".strip()


def _of_fine_tuning(settings: Mapping[str, Any]) -> str:
    second = percent(settings["fine_tune"])
    both = settings.get("snapshots", 1) > 1
    seen = "before and after that" if both else "after that"
    return (
        f"The model was trained on some members first, and then on the other {second} alone. The "
        f"attacker sees it {seen}, and distinguishes "
        f"{_DISTINGUISHES[settings.get('apart', 'members')]}."
    )


BLACK_BOX = "label-loss"
"""The strongest attack without access to parameters."""

WHITE_BOX = ("gradients", "white-box")
"""Attacks with gradients that learn from known members."""

LITTLE = 0.02
"""A difference of AUROCs below which white-box access adds little."""


@dataclass(frozen=True)
class MembershipVerdict:
    """The verdict on one test.

    Attributes:
        test: the test.
        title: the setting of the test in a few words.
        level: level of the leakage, from ``report.levels.level_of``.
        headline: the level in words.
        text: one or two sentences in plain text, with names in backticks.
        auroc: AUROC on target records.
        chance: AUROC without leakage.
        held_out: AUROC on validation records, which selected the attack.
    """

    test: Test
    title: str
    level: Level
    headline: str
    text: str
    auroc: Estimate
    chance: float
    held_out: float | None

    @property
    def strength(self) -> float:
        """The AUROC between guessing (0) and always right (1)."""
        return strength_of(self.auroc, self.chance)


def verdict(test: Test) -> MembershipVerdict:
    """Return the verdict on a test."""
    one = test.whole(AUROC)
    assert one is not None
    level = level_of(one.estimate, one.chance)
    wording = {"none": _none_seen, "inconclusive": _inconclusive, "below": _below}
    text = wording.get(level, _leak)(test, one.estimate, one.chance)
    title = f"Membership inference, {setting_of(test)}"
    return MembershipVerdict(
        test, title, level, HEADLINES[level], text, one.estimate, one.chance, one.held_out
    )


def about_white_box(tests: Sequence[Test]) -> str:
    """Return the gain from access to parameters in a sentence; empty if it is unknown."""
    aurocs = {
        test.adversary: one.estimate.value
        for test in tests
        if test.defense == UNDEFENDED and (one := test.whole(AUROC)) is not None
    }
    white = _best(aurocs, WHITE_BOX)
    black = _best(aurocs, (BLACK_BOX,))
    if white is None or black is None:
        return ""
    gain = aurocs[white] - aurocs[black]
    figures = (
        f"the AUROC of `{white}` is {number(aurocs[white])}, that of `{black}`, which sees "
        f"outputs, label and loss alone, {number(aurocs[black])}"
    )
    if gain < LITTLE:
        return f"White-box access adds little once the loss is known: {figures}."
    return f"White-box access adds {number(gain)} of AUROC: {figures}."


def _best(aurocs: Mapping[str, float], kinds: Sequence[str]) -> str | None:
    """Return the attack of these kinds with the highest AUROC, at any settings."""
    named = [name for name in aurocs if name.partition(":")[0] in kinds]
    return max(named, key=aurocs.__getitem__, default=None)


def _leak(test: Test, auroc: Estimate, chance: float) -> str:
    yes = {"strong": "Yes", "clear": "Yes, clearly", "weak": "Yes, weakly"}[level_of(auroc, chance)]
    return (
        f"{yes}: given one record that the model was trained on and one that it was not, "
        f"{_who(test)} distinguishes them correctly {percent(auroc.value)} of the time "
        f"({percent(auroc.confidence)} interval {percent(auroc.low)} to {percent(auroc.high)}; "
        f"guessing gives {percent(chance)}).{_few(test)}"
    )


def _few(test: Test) -> str:
    """Return a sentence on members recognised with few false alarms."""
    strict, mild = test.whole(TPR_AT_01_FPR), test.whole(TPR_AT_1_FPR)
    if mild is None:
        return f" The share of members at false alarms in 1 of 100 others {NEEDS[TPR_AT_1_FPR]}."
    rare = f"the share at 1 of 1,000 {NEEDS[TPR_AT_01_FPR]}"
    if strict is not None:
        rare = f"in 1 of 1,000 {percent(strict.estimate.value)}"
    return (
        f" With false alarms in 1 of 100 others it recognises {percent(mild.estimate.value)} of "
        f"the members, {rare}."
    )


def _none_seen(test: Test, auroc: Estimate, chance: float) -> str:
    least = smallest_detectable(auroc, chance)
    return (
        f"{_sentence(_who(test))} does not distinguish members from others: "
        f"{_figures(auroc, chance)}. The smallest leakage that this test can see is an AUROC of "
        f"{number(least)} (with 80 % power); a stronger adversary may find more."
    )


def _inconclusive(test: Test, auroc: Estimate, chance: float) -> str:
    return (
        f"{_sentence(_who(test))} neither distinguishes members from others nor shows that this "
        f"is impossible: {_figures(auroc, chance)}. A leak up to an AUROC of {number(auroc.high)} "
        "would not have been seen; use more records."
    )


def _below(test: Test, auroc: Estimate, chance: float) -> str:
    return (
        f"This test does not count: {_who(test)} does worse than guessing, "
        f"{_figures(auroc, chance)}. Members and others differ in another way in its known records "
        "than in the targets; this does not show privacy."
    )


def _figures(auroc: Estimate, chance: float) -> str:
    return (
        f"its AUROC is {number(auroc.value)} ({percent(auroc.confidence)} interval "
        f"{interval(auroc)}) and guessing gives {number(chance)}"
    )


def _who(test: Test) -> str:
    name = f"the attack `{test.adversary}`"
    if test.defense == UNDEFENDED:
        return name
    aware = "that knows the defense" if test.knowledge == ADAPTIVE else "unaware of the defense"
    return f"{name} ({aware} `{test.defense}`)"


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]
