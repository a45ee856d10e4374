"""The program: finds the commands, runs one, and turns refusals into one line."""

import functools
import io
import os
import pkgutil
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from leakgauge.cli import commands
from leakgauge.core.checks import InputError
from leakgauge.core.user_code import one_line

USAGE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]

TRACEBACK = "LEAKGAUGE_TRACEBACK"
"""The environment variable with which a fault of the program shows its traceback."""

LONGEST = 400
"""Largest number of characters of a word that a refusal shows whole."""

NO_MEMORY = "this needs more memory than there is; lower --trials, --hidden, --shadow"

app = typer.Typer(
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="print the version")] = False,
) -> None:
    """Measure how much private information leaks through the gradients of a training run."""
    if show_version:
        print(version("leakgauge"))
    elif context.invoked_subcommand is None:
        print(context.get_help())


def load_commands() -> None:
    """Add every command of ``leakgauge.cli.commands`` that the program does not have yet."""
    known = {one.name for one in app.registered_commands}
    for _, name, _ in pkgutil.iter_modules(commands.__path__):
        if name not in known:
            module = import_module(f"{commands.__name__}.{name}")
            command = getattr(module, name)
            app.command(name, epilog=_shown(module.EXAMPLES, command))(command)


def _shown(examples: Sequence[str], command: Callable[..., None]) -> str:
    """Return the end of a command's help: examples, and exit codes if it has ``--fail-if``."""
    from leakgauge.cli.gating import has_gate
    from leakgauge.cli.stopping import EXIT_CODES

    codes = [EXIT_CODES] if has_gate(command) else []
    return "\n\n".join(["Examples:", *(escape(f"  {one}") for one in examples), *codes])


def main() -> None:
    """Run a command; a refusal is one line on stderr and exit code 2."""
    from leakgauge.cli.stopping import INTERRUPTED

    for stream in (sys.stdout, sys.stderr):  # of a terminal or a file that is not Unicode
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        program = app if sys.argv[1:] == ["--version"] else _program()
        code = program(standalone_mode=False)
    except InputError as error:
        sys.exit(_refuse(str(error)))
    except MemoryError:
        sys.exit(_refuse(NO_MEMORY))
    except USAGE_ERROR as error:
        message = _with_hint(error.format_message())  # type: ignore[attr-defined]
        sys.exit(_refuse(_with_value(message)))
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except Exception as error:
        if isinstance(error, RuntimeError) and "alloc" in str(error):  # as torch says it
            sys.exit(_refuse(NO_MEMORY))
        if not _is_unreadable(error):
            if os.environ.get(TRACEBACK):
                raise
            sys.exit(_fault(error))
        sys.exit(_refuse(f"{error}; what is finished is kept: repeat the command to resume"))
    sys.exit(code or 0)


@functools.cache
def _program() -> Callable[..., int | None]:
    """Return the program with all commands, which takes long enough to be kept."""
    load_commands()
    return typer.main.get_command(app)


def _fault(error: Exception) -> int:
    """Print an error that no part of the program expects; return its exit code, 1."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    print(
        f"error: a fault of leakgauge or of a library, not of a setting: {one_line(error)} "
        f"({Path(place.filename).name}, line {place.lineno}); repeat with {TRACEBACK}=1 to see "
        "the whole, and report it",
        file=sys.stderr,
    )
    return 1


def _is_unreadable(error: Exception) -> bool:
    """Return whether a file cannot be read or written."""
    from safetensors import SafetensorError

    return isinstance(error, OSError | SafetensorError)


def _with_value(message: str) -> str:
    """Return a message of Typer, which names the option, together with the value that was typed."""
    match = re.search(r"'(--[a-z-]+)'", message)
    typed = dict(pairwise(sys.argv)) | dict(
        word.split("=", 1) for word in sys.argv if word.startswith("--") and "=" in word
    )
    if match is None or match[1] not in typed:
        return message
    return f"{message} (came: {typed[match[1]]!r})"


def _with_hint(message: str) -> str:
    """Return a message of Typer, with the option that a word with one dash may stand for."""
    words = (word for word in sys.argv[1:] if re.fullmatch(r"-[a-z][a-z-]+", word))
    word = next((one for one in words if message.startswith(f"No such option '{one[:2]}'")), None)
    return message if word is None else f"No such option {word!r}; did you mean '-{word}'?"


def _refuse(reason: str) -> int:
    words = (word if len(word) <= LONGEST else f"{word[:60]}..." for word in reason.split())
    print(f"error: {' '.join(words)}", file=sys.stderr)
    return 2
