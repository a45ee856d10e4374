"""The settings of a question: declared once, for options, grid keys, ``run.yaml`` and repeats."""

import functools
import json
import types
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from math import isfinite
from typing import (
    Annotated,
    Any,
    ClassVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import pydantic

from leakgauge.core.checks import LARGEST, InputError, require, require_choice, require_known
from leakgauge.core.numbers import MOST
from leakgauge.core.strict import Truth, Whole
from leakgauge.core.user_code import source_hash
from leakgauge.runs.setting import (
    ASKING,
    DATA,
    RUN,
    SETTING,
    TRAINING,
    Declared,
    in_digits,
    setting,
    wanted,
)

LOSSES = ("cross_entropy", "mse")

READING = ("sep", "encoding", "decimal", "sheet", "missing", "keep_na", "allow_outside")
"""Settings that say how data are read."""

NONE = "none"
"""The defense of a client that does nothing."""


@dataclass(frozen=True, kw_only=True)
class Spec:
    """Settings that all questions share; a question adds its own in a subclass.

    Every field carries a ``Setting``. A question checks the values and prepares them.
    """

    side: ClassVar[int] = 32
    aliases: ClassVar[Mapping[str, str]] = {}
    """Names of ``leakgauge audit``'s options that stand for another field here."""
    alone: ClassVar[bool] = False
    """Whether the question has its own command and is not part of an audit."""

    ask: tuple[str, ...] = setting((), "what to ask", ASKING, cells=True)
    data: str = setting("", "a table, images, or the name of a dataset", DATA, option=False)
    task: str | None = setting(
        None, "MODULE:FUNCTION that returns your own (Task, Dataset); no DATA then", DATA
    )
    label: str | None = setting(None, "column that the model predicts", DATA, once=True)
    group: str | None = setting(
        None, "column that names the user of each row; never a feature", DATA, once=True
    )
    drop: tuple[str, ...] = setting((), "column to leave out", DATA)
    bins: Mapping[str, Whole] = setting(
        {}, "COL=N: cut a numeric label or secret into N ranges", DATA
    )
    loss: str = setting(
        LOSSES[0],
        f"{' or '.join(LOSSES)}, of a label of numbers; others: --task",
        TRAINING,
        choices=LOSSES,
    )
    sep: str | None = setting(
        None, "separator of a text table, if the one that is found is wrong", DATA
    )
    encoding: str | None = setting(
        None, "encoding of a text table, if UTF-8 and Windows-1252 are wrong", DATA
    )
    decimal: str | None = setting(
        None, "decimal mark of numbers in text, if both fit: . or ,", DATA, choices=(".", ",")
    )
    sheet: str | None = setting(None, "sheet of a workbook, by name or number", DATA)
    missing: tuple[str, ...] = setting((), "word that counts as missing in every column", DATA)
    keep_na: Truth = setting(
        False, "keep NA, null and such words as values among numbers, too", DATA
    )
    merge_rare: Whole = setting(
        0,
        "values of label and secret with fewer rows than this become one; 0: none",
        DATA,
        least=0,
    )
    allow_outside: Truth = setting(
        False, "read images outside of the folder that their CSV is in", DATA
    )
    drop_missing: Truth = setting(False, "leave out rows without label, secret or group", DATA)
    scale_binary: Truth = setting(
        False,
        "standardise columns of 0 and 1, too, as other numbers are; by default they stay 0 and 1",
        DATA,
        option=False,
    )
    device: str = setting("cpu", "where torch computes: cpu, cuda, cuda:1, ...", RUN)
    seed: Whole = setting(0, "seed of all randomness", RUN, least=0, most=LARGEST - 1)

    @property
    def numeric(self) -> bool:
        """Whether the label is a number."""
        return self.loss != LOSSES[0]

    @property
    def reading(self) -> dict[str, Any]:
        """How the data are read, where the user says it."""
        given = {
            name: plain_value(declared(type(self))[name], getattr(self, name)) for name in READING
        }
        return {name: value for name, value in given.items() if value}

    @classmethod
    def knows_adversary(cls, adversary: str) -> bool:
        """Return whether ``--adversary`` may name this one; False where a question has none."""
        return False

    def unmeasured(self, knowledge: str, when: int | str) -> str:
        """Return why no figure exists for this knowledge and round; empty where one does.

        A grid refuses a figure of a paper that no cell will ever have.

        Args:
            knowledge: the adversary's knowledge of the defense: static or adaptive.
            when: a round, or all rounds together.
        """
        return ""


def declared(kind: type[Spec]) -> Mapping[str, Declared]:
    """Return the fields of a ``Spec`` class by name, in the order of their declaration."""
    return _declared(cast(Any, kind))


@functools.cache
def _declared(kind: Any) -> Mapping[str, Declared]:
    hints = get_type_hints(kind, include_extras=True)
    fields_ = {}
    for one in fields(kind):
        default = one.default if one.default_factory is MISSING else one.default_factory()
        base = _plain_type(hints[one.name])
        item = _plain_type((get_args(_bare(hints[one.name])) or (base,))[0])
        fields_[one.name] = Declared(
            one.name, base, default, one.metadata[SETTING], item if base is tuple else base
        )
    return fields_


def make_spec(kind: type[Spec], values: Mapping[str, Any], where: str = "") -> Spec:
    """Make a ``Spec`` from plain values, as a file or a command line has them.

    A single value stands for a tuple of one. Types are taken strictly: ``"2"`` is not a number.

    Args:
        kind: the class.
        values: values by the names of the fields.
        where: what the values came from, for refusals.

    Raises:
        InputError: a name is unknown or a value has the wrong type.
    """
    known = declared(kind)
    start = f"{where} " if where else ""
    for name in values:
        require_known(name, known, f"{start}has an unknown key {str(name)!r}")
    given = {
        name: (value,) if _is_single(known[name], value) else value
        for name, value in values.items()
        if not (value is None and known[name].kind is tuple)
    }
    for name, value in given.items():
        if isinstance(value, tuple | list) and len(value) > 1 and known[name].kind is not tuple:
            raise InputError(
                f"{start}takes one {name}, and {len(value)} came: {', '.join(map(str, value))}; "
                f"choose one, as by --set {where + '.' if where else ''}{name}={value[0]}"
            )
    try:
        made: Spec = _adapter(cast(Any, kind)).validate_python(given)
    except pydantic.ValidationError as error:
        raise InputError(f"{where}{': ' if where else ''}{first_problem(error)}") from error
    return made


_AS_JSON = (type(None), bool, int, float, str)
"""Types that JSON gives back as they are."""


def plain(spec: Spec) -> dict[str, Any]:
    """The settings as JSON has them; a tuple whose values would be cells is its single value.

    >>> plain(Spec(ask=("a",), data="d.csv"))["ask"]
    'a'
    """
    values = asdict(spec)
    return {name: plain_value(one, values[name]) for name, one in declared(type(spec)).items()}


def plain_value(one: Declared, value: Any) -> Any:
    """Return the value of a setting as JSON has it; see ``plain``."""
    known = value if type(value) in _AS_JSON else json.loads(json.dumps(value))
    if one.kind is tuple and one.setting.cells and len(known) < 2:
        return known[0] if known else None
    return known


def own_code(spec: Spec) -> dict[str, str]:
    """Return the sha256 of the code behind each MODULE:NAME of the settings, by the setting's text.

    It covers the modules that MODULE imports, and the files that the code names in a text. Files of
    ``--task`` are left out: the fingerprint of its records and model says what it read.
    """
    texts = [
        text
        for value in asdict(spec).values()
        for text in (value if isinstance(value, tuple) else (value,))
        if isinstance(text, str)
    ]
    hashes = {text: source_hash(text, files=text != spec.task) for text in texts}
    return {text: one for text, one in hashes.items() if one is not None}


def refuse_other_code(spec: Spec, wanted: Mapping[str, str]) -> None:
    """Refuse code of the user that changed, as some of it may have run before the change.

    Raises:
        InputError: ``own_code`` is no longer as wanted.
    """
    found = own_code(spec)
    changed = [text for text in found if found[text] != wanted.get(text)]
    if changed:
        raise InputError(
            f"the code of {changed[0]!r}, or a file that it names, changed during the run; repeat "
            "the command"
        )


def identifying(spec: Spec) -> dict[str, Any]:
    """Return the settings without where the data lie: their fingerprint says which they are.

    The user's own code counts by its content.
    """
    settings = {name: value for name, value in plain(spec).items() if name != "data"}
    code = own_code(spec)
    return {**settings, "code": code} if code else settings


def added(one: Declared, value: Any) -> Any:
    """Return a given value, together with the default where the setting adds to it."""
    if not one.setting.adds:
        return value
    return tuple(dict.fromkeys((*one.default, *((value,) if _is_single(one, value) else value))))


def changed(spec: Spec) -> dict[str, Any]:
    """The fields of ``spec`` that differ from their defaults, by name."""
    return {
        name: getattr(spec, name)
        for name, one in declared(type(spec)).items()
        if getattr(spec, name) != one.default
    }


def check_bounds(spec: Spec) -> None:
    """Refuse values outside of the bounds that their ``Setting`` names.

    Raises:
        InputError: a value is outside.
    """
    for name, one in declared(type(spec)).items():
        value = getattr(spec, name)
        values = value if one.kind is tuple else (value,)
        for each in values:
            if each is not None:
                _check_one(one, each)


def first_problem(error: pydantic.ValidationError) -> str:
    """The first problem of a validation in one line."""
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "missing":
        return f"{where} is missing; add it"
    said = problem["msg"][:1].lower() + problem["msg"][1:]  # a pattern keeps its capitals
    return f"{where} is {str(problem['input'])[:60]!r}; {said}"


def _check_one(one: Declared, value: Any) -> None:
    setting = one.setting
    if setting.choices is not None:
        require_choice(value, one.flag, setting.choices)
    if isinstance(value, str):
        require(value != "" or one.default == "", f"{one.flag} is empty; name one, or leave it out")
    for count in value.values() if isinstance(value, Mapping) else ():
        require(0 < count <= MOST, f"{one.flag} has {count}; expected 1 to {in_digits(MOST)}")
    if isinstance(value, bool | str | Mapping):
        return
    require(
        not isfinite(value) or abs(value) <= one.most,
        f"{one.flag} is {value}; expected a number of at most {in_digits(one.most)}",
    )
    inside = (
        isfinite(value)
        and (setting.least is None or value >= setting.least)
        and (setting.above is None or value > setting.above)
    )
    require(inside, f"{one.flag} is {value}; expected {wanted(one)}")


def _is_single(one: Declared, value: Any) -> bool:
    return one.kind is tuple and not isinstance(value, list | tuple)


@functools.cache
def _adapter(kind: Any) -> "pydantic.TypeAdapter[Any]":
    return pydantic.TypeAdapter(kind)


def _bare(hint: Any) -> Any:
    """A type without ``Annotated`` and ``None``."""
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = [one for one in get_args(hint) if one is not type(None)]
        return _bare(hint)
    return hint


def _plain_type(hint: Any) -> Any:
    bare = _bare(hint)
    return get_origin(bare) or bare
