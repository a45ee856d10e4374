"""What is known of a defense without any measurement, and what a measured success implies.

The first comes with the run (``Run.guarantees``) and certifies; the second follows from a success
rate by Fano's inequality, is a lower bound, and certifies nothing.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leakgauge.inference.report.asking import values
from leakgauge.inference.report.cells import Cell
from leakgauge.privacy.bounds import information_from_success
from leakgauge.report.wording import number, percent, short
from leakgauge.results.measurements import Measurement, Run

NO_CERTIFICATE = (
    "This is a lower bound on the information, and no certificate: another adversary may learn "
    "more from the same gradients."
)
ANY_ADVERSARY = (
    "The certificate holds for every adversary, as the information that can get through is known "
    "from the clipping and the noise alone."
)
VACUOUS = (
    "Vacuous: more information may get through than the secret holds, so an adversary that is "
    "always right is not excluded."
)
INFINITE = "infinite"


@dataclass(frozen=True)
class Implied:
    """The least information, in nats, that a test's success rate implies.

    Attributes:
        record: the success rate.
        value: implied by the rate itself; low and high, by the ends of its interval.
        certificate: the most that any adversary can learn, in nats, where that is known.
    """

    test: Cell
    record: Measurement
    value: float
    low: float
    high: float
    certificate: float | None = None

    @property
    def least(self) -> str:
        """What is implied at least, by the lower end of the interval."""
        if self.low == 0:
            return "nothing, as it is not surely above guessing"
        return f"at least {short(self.low)} nats ({short(bits(self.low))} bits)"

    @property
    def text(self) -> str:
        """In plain words."""
        return f"The measured success implies {self.least}. {NO_CERTIFICATE}"


@dataclass(frozen=True)
class Promise:
    """What a defense promises in one game, as ``Run.guarantees`` holds it."""

    game: str
    defense: str
    epsilon: Mapping[str, Any] | None
    channel: Mapping[str, Any] | None
    note: str

    @property
    def step_classic(self) -> str:
        """Epsilon of a step by the paper's formula, marked where it is not proven."""
        found = (self.epsilon or {}).get("step_classic") or {}
        valid = found.get("valid", True) or found.get("value") is None
        return epsilon(found.get("value")) + ("" if valid else " (not valid above 1)")

    @property
    def step_exact(self) -> str:
        """Epsilon of a step, exact."""
        return epsilon((self.epsilon or {}).get("step_exact"))

    @property
    def sampled(self) -> str:
        """Epsilon of the run, as if records were drawn independently."""
        found = self._run("run")
        missing = found.get("value") is None and "not installed" in str(found.get("note"))
        return "not computed" if missing else epsilon(found.get("value"))

    @property
    def unamplified(self) -> str:
        """Epsilon of the run, each record in one batch of each round."""
        return epsilon(self._run("run_unamplified").get("value"))

    @property
    def epsilons(self) -> str:
        """All four in a sentence."""
        if self.step_exact == INFINITE:
            return "epsilon is infinite, as there is no noise"
        return (
            f"epsilon of one step {self.step_classic} by the paper's formula, {self.step_exact} "
            f"exactly; of the whole run {self.sampled} were records sampled, {self.unamplified} "
            "with each record in every round"
        )

    @property
    def certificate(self) -> str:
        """On the advantage, in a few words."""
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
        """The paper's looser bound on the advantage."""
        found = (self.channel or {}).get("paper_advantage_bound") or {}
        value = found.get("value")
        if value is None:
            return "none" if self.channel is None else "not defined"
        return "vacuous" if value >= 1 else f"at most {number(value)}"

    @property
    def nats(self) -> str:
        """The most that gets through in the run."""
        return "no limit" if self.channel is None else short(self.channel["information_nats"])

    def _run(self, key: str) -> Mapping[str, Any]:
        return (self.epsilon or {}).get(key) or {}


def guarantee(run: Run, game: str, defense: str) -> Mapping[str, Any]:
    """What the run knows of a defense; empty where it says nothing."""
    found: Mapping[str, Any] = run.guarantees.get(game, {}).get(defense, {})
    return found


def promises(run: Run) -> list[Promise]:
    """Of each game and defense that promises something."""
    return [
        Promise(game, name, one.get("epsilon"), one.get("channel"), one.get("note", ""))
        for game, by_defense in run.guarantees.items()
        for name, one in by_defense.items()
        if one.get("epsilon") or one.get("channel")
    ]


def epsilon_notes(found: Sequence[Promise]) -> list[str]:
    """What the epsilons mean and assume, each sentence once."""
    said = []
    for one in found:
        if one.epsilon is not None:
            runs = (("sampled", "run"), ("a record a round", "run_unamplified"))
            said.append(str(one.epsilon["note"]))
            for name, key in runs:
                found_run = one.epsilon[key]
                head = "" if found_run["value"] is None else f"Whole run, {name}: "
                said.append(_sentence(head + found_run["note"]))
    return list(dict.fromkeys(said))


def channel_notes(found: Sequence[Promise]) -> list[str]:
    """What the certificates mean, each sentence once."""
    said = [ANY_ADVERSARY]
    for one in found:
        if one.channel is None:
            said.append(one.note)
        else:
            paper = one.channel["paper_advantage_bound"]
            said += [VACUOUS] if one.channel["vacuous"] else [str(one.channel["text"])]
            said += (
                [_sentence(f"The paper's bound: {paper['note']}")] if paper["value"] is None else []
            )
    return list(dict.fromkeys(said))


def _sentence(text: str) -> str:
    return f"{text.rstrip('.')}."


def implied(run: Run, test: Cell) -> Implied | None:
    """What the test's success (accumulated, else of the last round) implies.

    None without a success rate.
    """
    record = test.whole("success")
    if record is None or not 0 < record.chance < 1:
        return None
    # Guessing alone matters here; the number of values only has to fit it.
    classes = max(2, len(values(run, test.game)), math.ceil(1 / record.chance - 1e-9))
    low, value, high = (
        information_from_success(rate, classes, majority=record.chance)
        for rate in (record.estimate.low, record.estimate.value, record.estimate.high)
    )
    channel = guarantee(run, test.game, test.defense).get("channel")
    certificate = None if channel is None else channel["information_nats"]
    return Implied(test, record, value, low, high, certificate)


def all_implied(run: Run, tests: Sequence[Cell]) -> list[Implied]:
    """Of each test with a success rate."""
    found = (implied(run, test) for test in tests)
    return [one for one in found if one is not None]


def bits(nats: float) -> float:
    """The same information in bits.

    >>> bits(math.log(2))
    1.0
    """
    return nats / math.log(2)


def epsilon(value: float | None) -> str:
    """Three digits; None is an epsilon without any limit."""
    return INFINITE if value is None else short(value)
