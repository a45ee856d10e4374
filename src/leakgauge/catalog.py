"""The questions of an audit: the one place that names all rooms."""

import functools
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points

from leakgauge.core.checks import InputError
from leakgauge.runs.question import Question

QUESTIONS = (
    "leakgauge.inference.question:QUESTION",
    "leakgauge.guarantee.question:QUESTION",
    "leakgauge.membership.question:QUESTION",
    "leakgauge.inversion.question:QUESTION",
    "leakgauge.layers.question:QUESTION",
    "leakgauge.tokens.question:QUESTION",
    "leakgauge.federation.question:QUESTION",
)
"""``module:attribute`` of each question, in the order of the report."""

GROUP = "leakgauge.questions"
"""Entry point group in which other packages register questions."""


@functools.cache
def questions() -> Mapping[str, Question]:
    """Return every question by its name: built-in ones, then those of other packages.

    Raises:
        InputError: a package's question cannot be loaded, or two questions have the same name.
    """
    known: dict[str, Question] = {}
    for address in QUESTIONS:
        module, _, attribute = address.partition(":")
        question: Question = getattr(import_module(module), attribute)
        known[question.name] = question
    for entry in sorted(entry_points(group=GROUP), key=lambda one: one.name):
        try:
            question = entry.load()
        except Exception as error:
            raise InputError(
                f"the question {entry.name!r} of an installed package cannot be loaded "
                f"({type(error).__name__}: {error}); repair or remove the package"
            ) from error
        if question.name in known:
            raise InputError(f"two questions are named {question.name!r}; remove one package")
        known[question.name] = question
    return known


def asks() -> Mapping[str, Question]:
    """Return the question behind each word of ``--ask`` of an audit."""
    audited = [one for one in questions().values() if not one.Spec.alone]
    return {word: question for question in audited for word in question.asks}
