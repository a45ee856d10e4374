"""Command-line options: made from the fields of a ``Spec``, and those that commands share."""

import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from leakgauge.core.checks import require, require_count
from leakgauge.core.extras import check_device as check_device
from leakgauge.runs.reading import read_counts, read_item
from leakgauge.runs.setting import PANELS, RUN, Declared, Setting
from leakgauge.runs.spec import Spec, added, declared, make_spec

RUNS = Path("leakgauge-runs")
MOST_WORKERS = 1024
GIVEN = "given"
"""The parameter of a command that takes the values of the options of its ``Spec``."""

DATASETS = (
    *("adult", "crema_d", "heritage", "location30", "randhie", "celeba", "utkface", "cifar10"),
    *("cifar10-train", "cifar10-full-train", "cifar10-full-test", "cifar100", "imagenet-sample"),
    *("lfw", "utkface-ccs24"),
)
"""Data with names; typed here too, so that help and completion need not load the readers."""

Completion = Callable[[str], list[str]]
"""Maps the beginning of a word to the words that the shell offers."""

GivenOptions = Mapping[str, Any]
"""The options that a user typed, by the names of the settings."""

Workers = Annotated[
    int | None,
    typer.Option(
        help="processes (default: one a core where the work is worth it)", rich_help_panel=RUN
    ),
]
MaxMemory = Annotated[
    str | None,
    typer.Option(
        help="memory for all processes together, for example 4GB (default: half of what is free)",
        metavar="<size>",
        rich_help_panel=RUN,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(help=f"folder of the run (default: a new one in {RUNS}/)", rich_help_panel=RUN),
]
Json = Annotated[
    bool, typer.Option("--json", help="print one JSON object and nothing else", rich_help_panel=RUN)
]

Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose", "-v", help="print the whole answer, not its table alone", rich_help_panel=RUN
    ),
]


def with_options(
    spec: type[Spec],
    *,
    required: Collection[str] = (),
    without: Collection[str] = (),
    helps: Mapping[str, str] | None = None,
    suggests: Mapping[str, Callable[[], Collection[str]]] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command an option for each setting of ``spec``.

    The command's parameter ``given`` gets the values that were typed, by name.

    Args:
        spec: declares the settings.
        required: settings that the user must give.
        without: settings that get no option.
        helps: help texts that replace those of the settings.
        suggests: return texts for the shell's completion that replace those of the settings.
    """
    known = {
        name: one
        for name, one in declared(spec).items()
        if one.setting.option and name not in without
    }
    texts = helps or {}
    offered = suggests or {}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters
        options = [
            _parameter(
                one,
                name in required,
                texts.get(name, one.setting.help),
                _completion(offered.get(name) or partial(_offered, one.setting)),
            )
            for name, one in known.items()
        ]
        mine = [
            one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for name, one in own.items()
            if name != GIVEN
        ]
        first = [one for one in mine if one.default is inspect.Parameter.empty]
        rest = [one for one in mine if one.default is not inspect.Parameter.empty]
        arguments = [one for one in rest if _is_argument(one)]
        last = [one for one in rest if not _is_argument(one)]
        order = {one.name: PANELS.index(one.setting.panel) for one in known.values()}
        options.sort(key=lambda one: order[one.name])
        needed = [one for one in options if one.default is inspect.Parameter.empty]
        optional = [one for one in options if one.default is not inspect.Parameter.empty]
        parameters = [*first, *needed, *arguments, *optional, *last]

        @functools.wraps(command)
        def run(**values: Any) -> None:
            given = {name: _read(known[name], values.pop(name)) for name in known}
            typed = {name: value for name, value in given.items() if value is not None}
            command(**values, **{GIVEN: typed})

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate


def spec_of(kind: type[Spec], given: GivenOptions, **own: Any) -> Spec:
    """Return the settings of a command that has an option for each."""
    known = declared(kind)
    values = {name: added(known[name], value) for name, value in given.items()}
    return make_spec(kind, {**values, **own})


def run_path(out: Path | None, command: str) -> Path:
    """Return the folder of a run: the one that is named, or a new one."""
    return out or RUNS / f"{command}-{datetime.now():%Y%m%d-%H%M%S-%f}"


def worker_count(given: int | None) -> int | None:
    """Return the number of processes as given; None leaves it to the run."""
    if given is not None:
        require_count(given, "--workers")
        require(given <= MOST_WORKERS, f"--workers is {given}; expected at most {MOST_WORKERS}")
    return given


def _parameter(
    one: Declared, required: bool, text: str, completion: Completion
) -> inspect.Parameter:
    """An option of typer; None stands for one that was not typed."""
    # A list also where one value is wanted: so a second one is seen.
    kind: Any = bool if one.kind is bool else list[str]
    flags = [one.flag] if one.kind is bool else []
    shown = "" if one.kind is bool else f"<{_item(one).__name__}>"
    option = typer.Option(
        *flags,
        help=escape(_help(one, required, text)),
        metavar=shown,
        rich_help_panel=one.setting.panel,
        autocompletion=completion,
    )
    annotation: Any = Annotated[kind if required else kind | None, option]
    default = inspect.Parameter.empty if required else None
    return inspect.Parameter(
        one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def dataset(incomplete: str) -> list[str]:
    """Return the datasets whose names begin so; the shell falls back to files."""
    return [name for name in DATASETS if name.startswith(incomplete)]


def _offered(setting: Setting) -> Collection[str]:
    return setting.offered


def _completion(offered: Callable[[], Collection[str]]) -> Completion:
    """What the shell offers; where nothing fits, it falls back to files."""
    return lambda incomplete: [one for one in offered() if one.startswith(incomplete)]


def _item(one: Declared) -> type:
    return str if one.kind is Mapping else one.item


def _help(one: Declared, required: bool, text: str) -> str:
    several = one.kind in (tuple, Mapping)
    plain = one.default if isinstance(one.default, str | int | float) else None
    shown = plain is not None and not isinstance(plain, bool) and not required
    notes = [
        *(["repeatable"] if several else []),
        *([f"default {plain:g}" if isinstance(plain, float) else f"default {plain}"]
          if shown else []),
    ]  # fmt: skip
    return f"{text} ({'; '.join(notes)})" if notes else text


def _read(one: Declared, value: Any) -> Any:
    if value is None or value == [] or value is False:
        return None
    if one.kind is Mapping:
        return read_counts(value, one.flag)
    if one.kind is bool:
        return value
    value = [read_item(one, text, one.flag) for text in value]
    if one.kind is tuple or (one.setting.each and not one.setting.once and len(value) > 1):
        return tuple(value)
    given = ", ".join(repr(each) for each in value)
    require(
        len(value) == 1 or not one.setting.once,
        f"{one.flag} is given {len(value)} times ({given}); give it once",
    )
    return value[-1]


def _is_argument(one: inspect.Parameter) -> bool:
    metadata: Sequence[Any] = getattr(one.annotation, "__metadata__", ())
    return any(isinstance(each, typer.models.ArgumentInfo) for each in metadata)
