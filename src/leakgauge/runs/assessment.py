"""Assessment of an answer for decision makers: threat, findings, promises, limits.

A room fills these in; the audit card prints them. They hold figures that were measured before, and
compute none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leakgauge.report.section import Level
from leakgauge.results.measurements import Estimate, Measurement
from leakgauge.runs.spec import Spec

if TYPE_CHECKING:  # It loads torch, which --help need not wait for.
    from leakgauge.data.source import Source


@dataclass(frozen=True)
class Threat:
    """The adversary of an answer.

    Attributes:
        goal: what it wants to learn.
        knows: what it knows, a sentence each.
        does: what it does, a sentence each.
        lacks: what it does not know, a sentence each.
        nist: attacks of NIST AI 100-2 that are commonly mapped to it, with their identifiers.
        edpb: attacks of EDPB Opinion 28/2024 that are commonly mapped to it.
    """

    goal: str
    knows: Sequence[str]
    does: Sequence[str]
    lacks: Sequence[str] = ()
    nist: Sequence[str] = ()
    edpb: Sequence[str] = ()


@dataclass(frozen=True)
class Finding:
    """The figure of one test, with the verdict of its room.

    Attributes:
        figure: the measurement.
        verdict: verdict in a few words.
        level: level of the verdict.
        leads: whether the answer is based on it.
        smallest: the smallest true value that the test detects with 80 % power; None without one.
        no_smallest: why that value is missing.
        open_end: whether the interval has no upper end; ``high`` of the figure stands in for it.
    """

    figure: Measurement
    verdict: str
    level: Level
    leads: bool = True
    smallest: float | None = None
    no_smallest: str = ""
    open_end: bool = False


def leading(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that the answer is based on; without any for a test, all of it."""

    def test(one: Finding) -> tuple[str, str, str]:
        return one.figure.game, one.figure.secret, one.figure.defense

    led = {test(one) for one in findings if one.leads}
    return [one for one in findings if one.leads or test(one) not in led]


@dataclass(frozen=True)
class Baseline:
    """What is known without the attack.

    Attributes:
        name: in a few words.
        figure: the measurement; None where the value is known without one.
        value: the baseline's value.
        ask: the word of ``--ask``.
        metric: of the value, as titles write it.
    """

    name: str
    value: float
    ask: str
    metric: str
    figure: Measurement | None = None


@dataclass(frozen=True)
class Worst:
    """The user or record with the largest figure.

    Attributes:
        unit: ``"user"`` or ``"record"``.
        label: how the report names it.
        metric: the figure, in a few words.
        value: of the figure.
        test: the test that measured it, in a few words.
        estimate: the figure with its interval; None for a figure of one record, which has none.
    """

    unit: str
    label: str
    metric: str
    value: float
    test: str
    estimate: Estimate | None = None


@dataclass(frozen=True)
class Promised:
    """An epsilon that a mechanism claims, and the measured one.

    Attributes:
        defense: the mechanism.
        event: what happens once for this epsilon: a step, a run, one release.
        claimed: epsilon; None where it is infinite or was not computed.
        note: what the claim assumes, or why it is None.
        delta: of the claim.
        relation: the neighbouring relation.
        measured: epsilon as measured on this event; None where nothing measured it.
        outcome: what the measurement says of the claim, in a few words.
        open_end: whether the measured interval has no upper end.
    """

    defense: str
    event: str
    claimed: float | None
    delta: float
    relation: str
    note: str = ""
    measured: Estimate | None = None
    outcome: str = "not measured"
    open_end: bool = False


@dataclass(frozen=True)
class Assessment:
    """All that a room says of its answer.

    Attributes:
        threat: the adversary.
        findings: its tests.
        baselines: what is known without it.
        worst: users or records most at risk, the worst first; empty where none was measured.
        no_worst: why none was measured.
        promises: claimed epsilons.
        limits: what the figures do not mean, a sentence each.
    """

    threat: Threat
    findings: Sequence[Finding]
    baselines: Sequence[Baseline] = ()
    worst: Sequence[Worst] = ()
    no_worst: str = ""
    promises: Sequence[Promised] = ()
    limits: Sequence[str] = ()


@dataclass(frozen=True)
class Variant:
    """A control: the same question on changed data or settings, whose answer is known.

    Attributes:
        spec: resolved.
        source: the data.
        changed: what was changed, in one sentence.
    """

    spec: Spec
    source: "Source"
    changed: str


@dataclass(frozen=True)
class Controls:
    """The two controls of a question, or why one does not exist.

    Attributes:
        placebo: there is nothing to learn, so a sound test stays at chance.
        planted: the leak is planted, so a test that works finds it.
    """

    placebo: Variant | str
    planted: Variant | str
