"""Make the page of the command line from its parsers."""

import re
from collections.abc import Iterable
from itertools import groupby
from typing import Any

import typer.main

from leakgauge.cli.app import app, load_commands
from leakgauge.runs.setting import PANELS
from markdown_text import plain, table

OTHER = "Other options"


def page() -> str:
    """Return a section for each command: purpose, usage and options by topic."""
    load_commands()
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    list_ = table(
        ("command", "does"),
        ((f"[`leakgauge {name}`](#leakgauge-{name})", one.help) for name, one in commands.items()),
    )
    return list_ + "\n" + "\n".join(_command(name, one) for name, one in sorted(commands.items()))


def _command(name: str, command: Any) -> str:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option" and not one.hidden]
    used = [f"leakgauge {name}", *(_usage(one) for one in arguments), "[OPTIONS]"]
    parts = [
        f"## `leakgauge {name}`\n\n{plain(command.help)}\n",
        f"```text\n{' '.join(used)}\n```\n",
        *_arguments(arguments),
        *_panels(options),
        *_epilog(command.epilog or ""),
    ]
    return "\n".join(parts)


def _usage(argument: Any) -> str:
    word = argument.name.rstrip("_").upper()
    word = f"{word}..." if argument.nargs == -1 else word
    return word if argument.required else f"[{word}]"


def _arguments(arguments: list[Any]) -> list[str]:
    rows = [(f"`{one.name.rstrip('_').upper()}`", plain(one.help or "")) for one in arguments]
    return [table(("argument", "meaning"), rows)] if rows else []


def _panels(options: Iterable[Any]) -> list[str]:
    """Return a table for each panel of the help, in the order of the help."""
    order = [*PANELS, OTHER]
    known = sorted(options, key=lambda one: order.index(one.rich_help_panel or OTHER))
    return [
        f"**{panel}**\n\n" + table(("option", "value", "meaning"), [_option(one) for one in group])
        for panel, group in groupby(known, key=lambda one: one.rich_help_panel or OTHER)
    ]


def _option(one: Any) -> tuple[str, str, str]:
    names = ", ".join(f"`{name}`" for name in [*one.opts, *one.secondary_opts])
    value = "" if one.is_flag else (one.metavar or "").strip("<>")
    return names, value, plain(one.help or "")


def _epilog(text: str) -> list[str]:
    """Return the examples as a block, followed by the rest of the text."""
    lines = [one for one in text.split("\n\n") if one.strip() and one != "Examples:"]
    examples = [re.sub(r"\\(?=\[)", "", one.strip()) for one in lines]
    shown = [f"$ {one}" for one in examples if one.startswith("leakgauge")]
    rest = [plain(one) for one in examples if not one.startswith("leakgauge")]
    block = "```console\n" + "\n".join(shown) + "\n```\n"
    return [block, *(f"{one}\n" for one in rest)]
