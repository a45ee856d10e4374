"""``leakgauge audit DATA --ask reconstruction``: what ``leakgauge invert DATA`` plays."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text
from typer import Context

from leakgauge.cli import options
from leakgauge.cli.invert import play
from leakgauge.core.checks import require, require_choice, require_count
from leakgauge.inference.catalog import GAMES
from leakgauge.inversion.run.spec import QUESTION, InversionCell, default_image_count

OWN = frozenset(
    {
        *("table", "label", "secret", "group", "drop", "bins", "drop_missing", "hidden"),
        *("ask", "adversary", "defense", "batch_size", "seed", "device", "out", "json_"),
    }
)
"""The options of ``leakgauge audit`` that have a part in reconstruction, and ``secret``."""


def asked_alone(asks: list[str]) -> bool:
    """Whether reconstruction is asked for.

    Raises:
        InputError: it is, and something else as well; or a question is not known.
    """
    for ask in asks:
        require_choice(ask, "--ask", (*GAMES, QUESTION))
    require(
        QUESTION not in asks or set(asks) == {QUESTION},
        f"--ask {QUESTION} stands alone; run two commands, one with --ask "
        f"{' --ask '.join(ask for ask in asks if ask != QUESTION)}",
    )
    return QUESTION in asks


def play_audit(context: Context) -> None:
    """Play what ``leakgauge audit`` was given.

    Raises:
        InputError: an option is set that has no part in this, or it cannot be played.
    """
    options.refuse_others(context, OWN, f"has no part in --ask {QUESTION}")
    given: Mapping[str, Any] = context.params
    if given["secret"] is not None:
        note = f"note: --secret has no part in --ask {QUESTION}: whole records are rebuilt"
        Console(stderr=True).print(Text(note), soft_wrap=True)
    methods = given["adversary"] or [InversionCell.method]
    size = given["batch_size"]
    require_count(size, "--batch-size")
    first = InversionCell(
        data=given["table"],
        method=methods[0],
        label=given["label"],
        images=default_image_count(size),
        batch_size=size,
        hidden=tuple(given["hidden"] or ()),
        group=given["group"],
        drop=tuple(given["drop"] or ()),
        bins=options.bin_counts(given["bins"] or ()),
        drop_missing=given["drop_missing"],
        device=options.torch_device(given["device"]),
        seed=given["seed"],
    )
    play(first, methods, given["defense"] or (), out=given["out"], json_=given["json_"])
