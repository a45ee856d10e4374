"""The leading figures of an audit under flat names, for records that are kept elsewhere."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leakgauge.core.checks import InputError
from leakgauge.report.grouping import UNDEFENDED
from leakgauge.report.section import LEVELS
from leakgauge.results.measurements import Measurement
from leakgauge.results.metrics import Metric, metric_named
from leakgauge.runs.assessment import Finding, leading
from leakgauge.runs.audit import AuditRun
from leakgauge.runs.question import Question, answering, ask_of
from leakgauge.runs.store import Store, files_of


@dataclass(frozen=True)
class Headline:
    """The leading figure of one test.

    Attributes:
        topic: the word of ``--ask``; with the secret, if its question has several.
        finding: the figure, with its verdict.
        metric: its metric.
    """

    topic: str
    finding: Finding
    metric: Metric

    @property
    def figure(self) -> Measurement:
        """The measurement."""
        return self.finding.figure

    @property
    def under(self) -> str:
        """The defense and what the adversary knows of it; empty without a defense."""
        one = self.figure
        return "" if one.defense == UNDEFENDED else f"{one.defense}/{one.knowledge}"

    def named(self, what: str) -> str:
        """Return a flat name such as ``noise_std_0.01/adaptive/property.auroc``.

        Trackers accept letters, digits and ``_ - . /`` in all names.
        """
        full = "/".join(filter(None, [self.under, f"{self.topic}.{what}"]))
        return re.sub(r"[^\w\-./]+", "_", full)

    @property
    def values(self) -> dict[str, float]:
        """The figure by flat names: the value, ends of its interval and ``n``."""
        one, name = self.figure.estimate, self.named(self.figure.metric)
        high = {} if self.finding.open_end else {f"{name}.high": one.high}
        return {name: one.value, f"{name}.low": one.low, **high, f"{name}.n": one.n}


def headlines(audit: AuditRun, questions: Mapping[str, Question]) -> list[Headline]:
    """Return the leading figure of each test: the one that leaks most, where it has several.

    A test is a question and a secret, with a defense and what the adversary knows of it.

    Raises:
        InputError: a question is not installed, or its package does not say what leads.
    """
    found = []
    for key, answer in audit.answers.items():
        question = answering(key, questions)
        if question is None or not hasattr(question, "assessment"):
            raise InputError(f"no findings of the question {key!r}; install or update its package")
        findings = question.assessment(answer, files_of(Store(audit.path), key)).findings
        found += [_headline(one, question) for one in _each_strongest(leading(findings), question)]
    return _told_apart(found)


def _headline(finding: Finding, question: Question) -> Headline:
    metric = metric_named(finding.figure.metric, question.metrics)
    return Headline(ask_of(finding.figure, question), finding, metric)


def _each_strongest(findings: Iterable[Finding], question: Question) -> list[Finding]:
    found: dict[Any, Finding] = {}
    for one in findings:
        figure = one.figure
        test = (ask_of(figure, question), figure.secret, figure.defense, figure.knowledge)
        if test not in found or _urgency(one, question) > _urgency(found[test], question):
            found[test] = one
    return list(found.values())


def _urgency(finding: Finding, question: Question) -> tuple[int, float]:
    value = finding.figure.estimate.value
    rises = metric_named(finding.figure.metric, question.metrics).higher_is_worse
    return LEVELS[finding.level], value if rises else -value


def _told_apart(found: Sequence[Headline]) -> list[Headline]:
    """Return the headlines with the secret in the topic wherever an ask has several."""
    secrets: dict[str, set[str]] = {}
    for one in found:
        secrets.setdefault(one.topic, set()).add(one.figure.secret)
    return [
        Headline(f"{one.topic}.{one.figure.secret}", one.finding, one.metric)
        if len(secrets[one.topic]) > 1
        else one
        for one in found
    ]
