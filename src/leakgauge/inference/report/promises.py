"""Guarantees of defenses, and the information that a measured success implies."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leakgauge.inference.report.games import values
from leakgauge.inference.report.titles import title
from leakgauge.privacy.bounds import information_from_success
from leakgauge.report.grouping import Test
from leakgauge.report.levels import LEAKS, level_of
from leakgauge.report.wording import number, percent, short
from leakgauge.results.measurements import Measurement, Run

ANY_ADVERSARY = (
    "The certificate holds for every adversary, since the clipping and the noise bound the "
    "information that can get through."
)
VACUOUS = (
    "Vacuous: more information may get through than the secret holds, so an adversary that is "
    "always right is not excluded."
)
INFINITE = "infinite"


@dataclass(frozen=True)
class Promise:
    """The promise of a defense in one game, from ``Run.guarantees``."""

    game: str
    defense: str
    epsilon: Mapping[str, Any] | None
    channel: Mapping[str, Any] | None
    note: str

    @property
    def step_classic(self) -> str:
        """Epsilon of a step by the paper's formula, marked if it is not proven."""
        classic = (self.epsilon or {}).get("step_classic") or {}
        valid = classic.get("valid", True) or classic.get("value") is None
        return epsilon(classic.get("value")) + ("" if valid else " (not valid above 1)")

    @property
    def step_exact(self) -> str:
        """The exact epsilon of a step."""
        return epsilon((self.epsilon or {}).get("step_exact"))

    @property
    def sampled(self) -> str:
        """Epsilon of the run, assuming that records are drawn independently."""
        whole = self._run("run")
        missing = whole.get("value") is None and "not installed" in str(whole.get("note"))
        return "not computed" if missing else epsilon(whole.get("value"))

    @property
    def unamplified(self) -> str:
        """Epsilon of the run, each record in one batch of each round."""
        return epsilon(self._run("run_unamplified").get("value"))

    @property
    def epsilons(self) -> str:
        """All four epsilons in a sentence."""
        if self.step_exact == INFINITE:
            return "epsilon is infinite without noise"
        return (
            f"epsilon of one step {self.step_classic} by the paper's formula, {self.step_exact} "
            f"exactly; for the whole run {self.sampled} if records are sampled, {self.unamplified} "
            "with each record in every round"
        )

    @property
    def certificate(self) -> str:
        """The bound on the advantage, in a few words."""
        if self.channel is None:
            return "none"
        if self.channel["vacuous"]:
            return "vacuous"
        return (
            f"advantage at most {number(self.channel['advantage_bound'])}, success at most "
            f"{percent(self.channel['success_bound'])}"
        )

    @property
    def paper(self) -> str:
        """The paper's bound on the advantage."""
        bound = (self.channel or {}).get("paper_advantage_bound") or {}
        value = bound.get("value")
        if value is None:
            return "none" if self.channel is None else "not defined"
        return "vacuous" if value >= 1 else f"at most {number(value)}"

    @property
    def nats(self) -> str:
        """The most information that gets through in the run."""
        return "no limit" if self.channel is None else short(self.channel["information_nats"])

    @property
    def limits(self) -> tuple[str, str]:
        """Limits by power and by sensitivity over the run; ``nats`` is the smaller one."""
        names = ("capacity_nats_per_round", "sensitivity_nats_per_round")
        channel = self.channel or {}
        power, sensitivity = (
            short(channel["rounds"] * channel[name]) if name in channel else "" for name in names
        )
        return power, sensitivity

    def _run(self, key: str) -> Mapping[str, Any]:
        return (self.epsilon or {}).get(key) or {}


def guarantee(run: Run, game: str, defense: str) -> Mapping[str, Any]:
    """Return the guarantees of a defense in the run; empty if there are none."""
    known: Mapping[str, Any] = run.guarantees.get(game, {}).get(defense, {})
    return known


def promises(run: Run) -> list[Promise]:
    """Return the promise of each game and defense that has one."""
    return [
        Promise(game, name, one.get("epsilon"), one.get("channel"), one.get("note", ""))
        for game, by_defense in run.guarantees.items()
        for name, one in by_defense.items()
        if one.get("epsilon") or one.get("channel")
    ]


def epsilon_notes(promised: Sequence[Promise]) -> list[str]:
    """Return the meaning and the assumptions of the epsilons, each sentence once."""
    notes = []
    for one in promised:
        if one.epsilon is not None:
            notes.append(str(one.epsilon["note"]))
            for name, key in (("sampled", "run"), ("a record a round", "run_unamplified")):
                whole = one.epsilon[key]
                head = "" if whole["value"] is None else f"Whole run, {name}: "
                notes.append(_sentence(head + whole["note"]))
    return list(dict.fromkeys(notes))


def channel_notes(promised: Sequence[Promise]) -> list[str]:
    """Return the meaning of the certificates, each sentence once."""
    notes = [ANY_ADVERSARY]
    for one in promised:
        if one.channel is None:
            notes.append(one.note)
            continue
        note = one.channel["paper_advantage_bound"]["note"]
        notes.append(VACUOUS if one.channel["vacuous"] else str(one.channel["text"]))
        if note:
            notes.append(_sentence(f"The paper's bound: {note}"))
    return list(dict.fromkeys(notes))


def _sentence(text: str) -> str:
    return f"{text.rstrip('.')}."


def epsilon(value: float | None) -> str:
    """Return an epsilon with three digits; None means an infinite one."""
    return INFINITE if value is None else short(value)


NO_CERTIFICATE = (
    "This is a lower bound on the information, not a certificate: another adversary may learn "
    "more from the same gradients."
)


@dataclass(frozen=True)
class Implied:
    """The least information, in nats, that a test's success rate implies.

    Attributes:
        test: the test.
        success: success rate of the test.
        value: information implied by the rate.
        low: information implied by the lower end of its interval.
        high: information implied by the upper end of its interval.
    """

    test: Test
    success: Measurement
    value: float
    low: float
    high: float

    @property
    def title(self) -> str:
        """Title of the test."""
        return title(self.test)

    @property
    def units(self) -> list[tuple[str, str, str]]:
        """The value and both ends as text, in nats and in bits."""
        nats = (self.value, self.low, self.high)
        return [(short(a), short(b), short(c)) for a, b, c in (nats, map(bits, nats))]

    @property
    def least(self) -> str:
        """Information that the lower end of the interval implies, in words."""
        if self.low == 0:
            return "nothing, as it is not significantly above guessing"
        return f"at least {short(self.low)} nats ({short(bits(self.low))} bits)"

    @property
    def text(self) -> str:
        """The implied information in a sentence."""
        return f"The measured success implies {self.least}. {NO_CERTIFICATE}"


def implied(run: Run, test: Test) -> Implied | None:
    """Return the information that the success of a test implies; None without a leak.

    Without an accumulated success the last round is used.
    """
    one, auroc = test.whole("success"), test.whole("auroc")
    if one is None or not 0 < one.chance < 1:
        return None
    if auroc is not None and level_of(auroc.estimate, auroc.chance) not in LEAKS:
        return None  # a figure above 0 would contradict the verdict
    # only the chance level matters; the number of values must be consistent with it
    classes = max(2, len(values(run, test.game)), math.ceil(1 / one.chance - 1e-9))
    low, value, high = (
        information_from_success(rate, classes, majority=one.chance)
        for rate in (one.estimate.low, one.estimate.value, one.estimate.high)
    )
    return Implied(test, one, value, low, high)


def all_implied(run: Run, tests: Sequence[Test]) -> list[Implied]:
    """Return the implied information of each test with a success rate."""
    each = (implied(run, test) for test in tests)
    return [one for one in each if one is not None]


def bits(nats: float) -> float:
    """Return information in nats as bits.

    >>> bits(math.log(2))
    1.0
    """
    return nats / math.log(2)
