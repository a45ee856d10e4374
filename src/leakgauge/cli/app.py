"""The program: finds the commands, runs one, and turns refusals into one line."""

import pkgutil
import re
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from itertools import pairwise
from typing import Annotated

import typer
from rich.markup import escape

from leakgauge.cli import commands
from leakgauge.core.checks import InputError

USAGE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]

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

    try:
        if sys.argv[1:] != ["--version"]:
            load_commands()
        code = app(standalone_mode=False)
    except InputError as error:
        sys.exit(_refuse(str(error)))
    except MemoryError:
        sys.exit(_refuse(NO_MEMORY))
    except RuntimeError as error:
        if "alloc" not in str(error):  # as torch says it
            raise
        sys.exit(_refuse(NO_MEMORY))
    except USAGE_ERROR as error:
        sys.exit(_refuse(_with_value(error.format_message())))  # type: ignore[attr-defined]
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except Exception as error:
        if not _is_unreadable(error):
            raise
        sys.exit(_refuse(f"{error}; what is finished is kept: repeat the command to resume"))
    sys.exit(code or 0)


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


def _refuse(reason: str) -> int:
    print(f"error: {' '.join(reason.split())}", file=sys.stderr)
    return 2
