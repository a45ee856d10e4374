"""A grid of experiments, and the cells that it unfolds to."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

from leakgauge.core.checks import InputError, nearest, require, require_choice, require_known
from leakgauge.runs.grid_file import GridFile, make_row, refuse_unknown
from leakgauge.runs.paper import PaperRow
from leakgauge.runs.question import Question, question_of
from leakgauge.runs.reading import read_item, split_list
from leakgauge.runs.setting import Declared
from leakgauge.runs.spec import Spec, declared, make_spec, plain

SMALL = "small"

MOST_CELLS = 10_000
"""Largest number of cells of a grid, as all are made before the first one runs."""


@dataclass(frozen=True)
class Grid:
    """What one file asks for at one size.

    Attributes:
        name: for folders and titles.
        about: in a few sentences.
        size: the word that chose the overrides; empty where the file has no sizes.
        question: that every cell asks.
        grids: the cells of each of the file's grids.
        paper: what the paper states.
    """

    name: str
    about: str
    size: str
    question: Question
    grids: tuple[tuple[Spec, ...], ...]
    paper: tuple[PaperRow, ...] = ()

    @property
    def cells(self) -> list[Spec]:
        """Every cell once; the first seed of all comes before the second of any.

        So a run that is stopped early has whole figures of fewer seeds.
        """
        cells = _once(cell for cells in self.grids for cell in cells)
        seeds = list(dict.fromkeys(cell.seed for cell in cells))
        return sorted(cells, key=lambda cell: seeds.index(cell.seed))

    def only(self, wanted: Mapping[str, Sequence[Any]]) -> "Grid":
        """Return the grid with the cells that have one of the values of each setting.

        The paper's figures about other cells are left out.

        Args:
            wanted: values by setting; empty for all cells.

        Raises:
            InputError: no cell has them.
        """
        for name, values in wanted.items():
            there = [plain(cell)[name] for cell in self.cells]
            for value in values:
                require(
                    any(_is(one, value) for one in there),
                    f"--only {name} is {value!r}, which no cell has; {name} is one of "
                    f"{', '.join(dict.fromkeys(map(str, there)))}",
                )
        grids = tuple(_kept(cells, wanted) for cells in self.grids)
        cells = _once(cell for cells in grids for cell in cells)
        require(bool(cells), "no cell has all values of --only together; name fewer of them")
        paper = tuple(row for row in self.paper if any(map(row.about, cells)))
        return replace(self, grids=grids, paper=paper)


def unfold(
    file: GridFile,
    questions: Mapping[str, Question],
    *,
    size: str | None = None,
    overrides: Mapping[str, str] | None = None,
    only: Mapping[str, str] | None = None,
) -> Grid:
    """Return the grid of a file at one size; the other sizes are checked too.

    Args:
        file: as read.
        questions: by name; the first is asked where a grid names none.
        size: one of the file's sizes; None takes ``small``, else the first.
        overrides: of ``--set``: values, separated by commas, that replace the file's.
        only: of ``--only``: values, separated by commas, of the cells that run; None runs all.

    Raises:
        InputError: the file asks for what does not exist, or no cell has the values of ``only``.
    """
    question = _question(file, questions)
    known = declared(question.Spec)
    chosen = _size(file, size)
    given = {name: _values(known, name, text, "--set") for name, text in (overrides or {}).items()}
    rows = [
        make_row(row, f"paper row {number}", known)
        for number, row in enumerate(file.paper, start=1)
    ]
    rows = [replace(row, metric=row.metric or next(iter(question.metrics))) for row in rows]
    for name, values in file.sizes.items():
        refuse_unknown(values, known, f"size {name}")
    wanted = _wanted(known, only or {})
    sizes = {
        name: Grid(
            file.name,
            file.about.strip(),
            name,
            question,
            _grids(file, question, {**values, **given}, wanted),
            tuple(rows),
        )
        for name, values in (file.sizes or {"": {}}).items()
    }
    if rows and not overrides:  # they may well leave cells out that the paper is about
        cells = [[(cell, plain(cell)) for cell in grid.cells] for grid in sizes.values()]
        for number, row in enumerate(rows, start=1):
            _check_row(row, number, question, cells)
    return sizes[chosen].only(wanted)


def differing(one: Spec, other: Spec) -> list[str]:
    """Return the names of the settings in which two cells differ, but for the seed."""
    return _differing(plain(one), plain(other))


def _differing(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    return [name for name in mine if name != "seed" and mine[name] != theirs.get(name)]


def _question(file: GridFile, questions: Mapping[str, Question]) -> Question:
    """The question that all cells ask: it decides which settings they have."""
    known = [word for question in questions.values() for word in question.asks]
    words = [str(word) for one in file.grids for word in _listed(one.get("ask", known[0]))]
    asked: dict[str, Question] = {}
    for word in words:
        question = question_of(word, questions)
        if question is None:
            raise InputError(f"ask is {word!r}{nearest(word, known)}")
        asked[question.name] = question
    require(
        len(asked) == 1,
        f"the grids ask for different things ({', '.join(sorted(dict.fromkeys(words)))}); write "
        "a file for each",
    )
    return next(iter(asked.values()))


def _check_row(
    row: PaperRow,
    number: int,
    question: Question,
    grids: Sequence[Sequence[tuple[Spec, Mapping[str, Any]]]],
) -> None:
    """A figure that no cell has would stand as "not run" for ever.

    ``grids`` has the cells of each size, with their settings as ``plain`` returns them.
    """
    require_choice(row.metric, f"paper row {number}: metric", question.metrics)
    about = [[both for both in cells if row.is_about(both[1])] for cells in grids]
    require(any(about), f"paper row {number} is about no cell of the grids; mend its 'where'")
    other = next(
        (name for cells in about for _, one in cells for name in _differing(cells[0][1], one)), ""
    )
    require(
        not other, f"paper row {number} is about cells that differ in {other}; add it to 'where'"
    )
    reasons = [cell.unmeasured(row.knowledge, row.round) for cells in about for cell, _ in cells]
    require(not all(reasons), f"paper row {number} {next(iter(reasons), '')}")


def _size(file: GridFile, size: str | None) -> str:
    if not file.sizes:
        require(size is None, f"the file has no sizes; run it without --size {size}")
        return ""
    name = size or (SMALL if SMALL in file.sizes else next(iter(file.sizes)))
    require_choice(name, "--size", file.sizes)
    return name


def _grids(
    file: GridFile,
    question: Question,
    overrides: Mapping[str, Any],
    wanted: Mapping[str, Sequence[Any]],
) -> tuple[tuple[Spec, ...], ...]:
    return tuple(
        _cells({**one, **overrides}, question, wanted, f"grid {number}")
        for number, one in enumerate(file.grids, start=1)
    )


def _cells(
    settings: Mapping[str, Any],
    question: Question,
    wanted: Mapping[str, Sequence[Any]],
    where: str,
) -> tuple[Spec, ...]:
    """Every combination, in the order of the file's keys.

    A combination that the question refuses is left out where ``--only`` leaves it out, too: with
    ``--set images=1 --only batch_size=1``, a grid with batches of 4 does not matter.
    """
    known = declared(question.Spec)
    refuse_unknown(settings, known, where)
    require("data" in settings, f"{where} names no data; add a line 'data: NAME or path'")
    ask = {"ask": settings.get("ask", next(iter(question.asks)))}
    choices = {name: _choices(known[name], value) for name, value in {**ask, **settings}.items()}
    count = prod(len(values) for values in choices.values())
    require(
        count <= MOST_CELLS,
        f"{where} has {count:,} cells; at most {MOST_CELLS:,} can be run; name fewer values",
    )
    combinations = (dict(zip(choices, one, strict=True)) for one in product(*choices.values()))
    cells = []
    for one in combinations:
        try:
            cells.append(_cell(one, question, where))
        except InputError:
            if _may_be(one, wanted):
                raise
    return tuple(_once(cells))


def _may_be(settings: Mapping[str, Any], wanted: Mapping[str, Sequence[Any]]) -> bool:
    """Return whether a refused cell, of which only the file's words are known, was wanted."""
    return all(
        any(_is(settings[name], value) or [settings[name]] == value for value in values)
        for name, values in wanted.items()
        if name in settings
    )


def _cell(settings: Mapping[str, Any], question: Question, where: str) -> Spec:
    """Refuses here what would fail hours later."""
    cell = make_spec(question.Spec, settings, where)
    try:
        question.check(cell)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    return cell


def _choices(one: Declared, value: Any) -> list[Any]:
    """The values of a setting that a file names, a cell each."""
    several = isinstance(value, list)
    listed = one.kind is tuple and not one.setting.cells
    if listed:
        several = several and any(isinstance(each, list) for each in value)
    require(not several or len(value) > 0, f"{one.name} is an empty list; name a value")
    return value if several else [value]


def _wanted(known: Mapping[str, Declared], only: Mapping[str, str]) -> dict[str, list[Any]]:
    return {name: _values(known, name, text, "--only") for name, text in only.items()}


def _kept(cells: Sequence[Spec], wanted: Mapping[str, Sequence[Any]]) -> tuple[Spec, ...]:
    def matches(settings: Mapping[str, Any]) -> bool:
        return all(
            any(_is(settings[name], value) for value in values) for name, values in wanted.items()
        )

    return tuple(cell for cell in cells if matches(plain(cell)))


def _is(setting: Any, value: Any) -> bool:
    """Return whether a cell has the value; a list of one counts as its item."""
    return bool(setting in (value, [value]))


def _values(known: Mapping[str, Declared], name: str, text: str, option: str) -> list[Any]:
    """The values of ``--set`` or ``--only NAME=VALUE,VALUE``, a cell each."""
    require_known(name, known, f"{option} has an unknown key {name!r}")
    one = known[name]
    where = f"{option} {name}"
    if one.kind is tuple and not one.setting.cells:
        return [[read_item(one, part, where) for part in split_list(text)]]
    return [read_item(one, part, where) for part in split_list(text)]


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]


def _once(cells: Iterable[Spec]) -> list[Spec]:
    different: list[Spec] = []
    for cell in cells:
        if cell not in different:
            different.append(cell)
    return different
