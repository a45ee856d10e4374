"""Turns the words of a command into the questions of an audit and their settings."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from leakgauge.core.checks import InputError, nearest, require, require_known
from leakgauge.runs.question import Asked, Question, question_of
from leakgauge.runs.reading import read_value
from leakgauge.runs.setting import Declared
from leakgauge.runs.spec import Spec, added, check_bounds, declared, make_spec

if TYPE_CHECKING:  # These load torch, which --help need not wait for.
    from leakgauge.data.source import Source
    from leakgauge.runs.audit import AuditQuestion
    from leakgauge.runs.question import Prepared

ALL = "all"
"""The word of ``--ask`` that asks everything that the data allow."""

ADVERSARY = "adversary"


@dataclass(frozen=True)
class AuditRequest:
    """The request of a user for an audit.

    Attributes:
        asks: words of ``--ask``; empty for the first question's first.
        options: settings by name, for every question asked that has a setting of that name.
        sets: settings of one question by ``(question, name)``; they override ``options``.
        roles: roles of columns that come with the data; unlike ``options``, no question need
            have a setting of that name.
    """

    asks: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    sets: Mapping[tuple[str, str], Any] = field(default_factory=dict)
    roles: Mapping[str, Any] = field(default_factory=dict)

    @property
    def adversaries(self) -> tuple[str, ...]:
        """The adversaries by name, also where a single one is given."""
        names = self.options.get(ADVERSARY, ())
        return (names,) if isinstance(names, str) else tuple(names)


def asked_of(request: AuditRequest, questions: Mapping[str, Question]) -> Asked:
    """Return the questions that are asked, each with its settings.

    Raises:
        InputError: a word, an option or a setting does not exist, or no question uses it.
    """
    words = list(request.asks) or [_first(questions)]
    require(len(set(words)) == len(words), f"--ask names one twice: {', '.join(words)}")
    groups: dict[str, list[str]] = {}
    for word in words:
        groups.setdefault(_question(word, questions).name, []).append(word)
    _refuse_unused(request, groups, words, questions)
    adversaries_of = _adversaries_of(request.adversaries, [questions[one] for one in groups])
    return {
        key: (questions[name], _spec(questions[name], asks, one, adversaries_of[name]))
        for name, asks in groups.items()
        for key, one in _each(request, questions[name])
    }


def all_allowed(
    request: AuditRequest, questions: Mapping[str, Question], source: "Source"
) -> tuple[Asked, "dict[str, AuditQuestion]", dict[str, str]]:
    """Return every question that the data allow, prepared, and why other words are left out.

    All words of a question are prepared at once. If the data refuse them, each word is tried
    together with the allowed words before it.

    Returns:
        The allowed questions with their settings as given, the same questions prepared, and a
        reason for each word that the data do not allow.

    Raises:
        InputError: the data allow no question, or a word or a setting is wrong for all data.
    """
    from leakgauge.runs.audit import AuditQuestion

    for word in request.asks:
        if word != ALL:
            _question(word, questions)  # refuses an unknown one
    _refuse_unknown_adversaries(request, questions)
    _check_defenses(request)
    asked: dict[str, tuple[Question, Spec]] = {}
    ready: dict[str, AuditQuestion] = {}
    reasons: dict[str, str] = {}
    for question in questions.values():
        if question.Spec.alone:
            continue
        for key, one in _each(request, question):
            known = [name for name in request.adversaries if question.Spec.knows_adversary(name)]
            found, refused = _allowed(question, one, known, source)
            reasons |= refused
            if found is not None:
                spec, prepared = found
                asked[key], ready[key] = (question, spec), AuditQuestion(question, prepared)
    if not asked:
        why = "; ".join(f"{word}: {reason}" for word, reason in reasons.items())
        raise InputError(f"the data allow no question ({why})")
    return asked, ready, reasons


def _allowed(
    question: Question, request: AuditRequest, adversaries: Sequence[str], source: "Source"
) -> "tuple[tuple[Spec, Prepared] | None, dict[str, str]]":
    """Return the settings with the words that the data allow, prepared, and the reasons."""

    def attempt(words: Sequence[str]) -> "tuple[Spec, Prepared]":
        spec = _spec(question, words, request, adversaries)
        question.check(spec)
        return spec, question.prepare(spec, source)

    words = tuple(question.asks)
    check_bounds(_spec(question, words[:1], request, adversaries))
    if len(words) > 1:
        with suppress(InputError):
            return attempt(words), {}
    found: tuple[Spec, Prepared] | None = None
    kept: tuple[str, ...] = ()
    reasons = {}
    for word in words:
        try:
            found = attempt((*kept, word))
        except InputError as error:
            reasons[word] = str(error)
        else:
            kept = (*kept, word)
    return found, reasons


def _check_defenses(request: AuditRequest) -> None:
    """Refuse a wrong defense, which is an error whatever the data are."""
    from leakgauge.defenses.catalog import parse_defense

    for text in request.options.get("defense", ()):
        parse_defense(text, batch_size=1)


def read_sets(
    texts: Iterable[str], questions: Mapping[str, Question]
) -> dict[tuple[str, str], Any]:
    """Return the settings of ``--set QUESTION.KEY=VALUE``.

    Raises:
        InputError: a text is not of that form, or names what does not exist.
    """
    sets = {}
    for text in texts:
        name, equals, value = text.partition("=")
        require(
            bool(equals and "." in name),
            f"--set is {text!r}; expected QUESTION.KEY=VALUE, for example "
            f"{next(iter(questions))}.seed=1",
        )
        owner, one = setting_of(name, questions, f"--set is {text!r}")
        sets[owner.name, one.name] = read_value(one, value, f"--set {name}")
    return sets


def setting_of(
    name: str, questions: Mapping[str, Question], where: str
) -> tuple[Question, Declared]:
    """Return the question and the setting that ``QUESTION.KEY`` names.

    Args:
        name: the question's name, or a word of ``--ask``, a point and the setting's name.
        questions: questions by name.
        where: what ``name`` came from, for refusals.

    Raises:
        InputError: the question or the setting does not exist.
    """
    question, _, key = name.partition(".")
    owner = questions.get(question) or question_of(question, questions)
    if owner is None:
        raise InputError(f"{where}: no question {question!r}{nearest(question, questions)}")
    known = declared(owner.Spec)
    require_known(key, known, f"{where}: {question} has no setting {key!r}")
    return owner, known[key]


def adversaries(questions: Mapping[str, Question]) -> tuple[str, ...]:
    """Return the names that ``--adversary`` takes, of all questions."""
    fields = [_field(one.Spec, ADVERSARY) for one in questions.values()]
    return tuple(dict.fromkeys(name for one in fields if one for name in one.setting.offered))


def _each(request: AuditRequest, question: Question) -> Iterator[tuple[str, AuditRequest]]:
    """Yield a key and the wishes for each time that a question is asked.

    Where a setting has several values, each is asked about alone, and the columns that the others
    name are left out: a model that saw one secret would give away what it says of another.

    Raises:
        InputError: a value is given twice.
    """
    given = {**request.roles, **request.options}
    fields = {option: _field(question.Spec, option) for option in given}
    several = [
        option
        for option, one in fields.items()
        if one is not None and one.setting.each and isinstance(given[option], list | tuple)
    ]
    if not several:
        yield question.name, request
        return
    name, values = several[0], list(given[several[0]])
    require(len(set(values)) == len(values), f"--{name} names one twice: {', '.join(values)}")
    drops = "drop" in declared(question.Spec)
    for number, value in enumerate(values, start=1):
        others = [one for one in values if one != value]
        drop = (*_tuple(given.get("drop", ())), *others)
        options = {**request.options, name: value, **({"drop": drop} if drops else {})}
        key = question.name if number == 1 else f"{question.name}-{number}"
        yield key, replace(request, options=options)


def _tuple(value: Any) -> tuple[Any, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _first(questions: Mapping[str, Question]) -> str:
    return next(iter(next(iter(questions.values())).asks))


def _question(word: str, questions: Mapping[str, Question]) -> Question:
    question = question_of(word, questions)
    if question is None:
        known = [one for each in questions.values() for one in each.asks]
        raise InputError(f"--ask is {word!r}{nearest(word, [*known, ALL])}")
    return question


def _field(spec: type[Spec], option: str) -> Declared | None:
    """The setting that an option stands for; None where the question has none."""
    known = declared(spec)
    return known.get(spec.aliases.get(option, option))


def _refuse_unused(
    request: AuditRequest,
    groups: Mapping[str, Sequence[str]],
    words: Sequence[str],
    questions: Mapping[str, Question],
) -> None:
    every = [
        name for one in questions.values() for name in (*declared(one.Spec), *one.Spec.aliases)
    ]
    for option in request.options:
        require_known(option, dict.fromkeys(every), f"no setting {option!r}")
        used = any(_field(questions[name].Spec, option) is not None for name in groups)
        require(
            used,
            f"--{option.replace('_', '-')} changes nothing for --ask {' --ask '.join(words)}; "
            "leave it out",
        )
    for name, key in request.sets:
        require(
            name in groups,
            f"--set {name}.{key} is given, but {name} is not asked; add --ask "
            f"{next(iter(questions[name].asks))} or leave it out",
        )


def _spec(
    question: Question, words: Sequence[str], request: AuditRequest, adversaries: Sequence[str]
) -> Spec:
    values: dict[str, Any] = {"ask": tuple(words)}
    for option, value in {**request.roles, **request.options}.items():
        one = _field(question.Spec, option)
        if one is not None and option == ADVERSARY:
            values |= {one.name: tuple(adversaries)} if adversaries else {}
        elif one is not None:
            values[one.name] = added(one, value)
    known = declared(question.Spec)
    for (name, key), value in request.sets.items():
        if name == question.name:
            values[key] = added(known[key], value)
    return make_spec(question.Spec, values, question.name)


def _refuse_unknown_adversaries(request: AuditRequest, questions: Mapping[str, Question]) -> None:
    """Let the first question that has adversaries refuse a name that no question knows."""
    for name in request.adversaries:
        able = [one for one in questions.values() if _field(one.Spec, ADVERSARY) is not None]
        if able and not any(one.Spec.knows_adversary(name) for one in able):
            able[0].check(_spec(able[0], [next(iter(able[0].asks))], request, [name]))


def _adversaries_of(names: Sequence[str], asked: Sequence[Question]) -> dict[str, list[str]]:
    """Return the adversaries of each question; a question without one uses its default.

    A name that no question knows goes to the first that has adversaries, which refuses it.
    """
    adversaries_of: dict[str, list[str]] = {question.name: [] for question in asked}
    able = [one for one in asked if _field(one.Spec, ADVERSARY) is not None]
    for name in names:
        takers = [one for one in able if one.Spec.knows_adversary(name)] or able[:1]
        for one in takers:
            adversaries_of[one.name].append(name)
    return adversaries_of
