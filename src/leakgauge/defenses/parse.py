"""A defense from a word of the command line or of a file."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from leakgauge.checks import InputError, nearest, require
from leakgauge.defenses import defense
from leakgauge.defenses.defense import Defense

NAMES: dict[str, Callable[..., Defense]] = {
    "none": defense.none,
    "prune": defense.prune,
    "sign": defense.sign,
    "perturb": defense.perturb,
    "vib": defense.vib,
    "dpsgd": defense.dpsgd,
    "clip": defense.clip,
    "noise": defense.gaussian,
    "quantise": defense.quantise,
}
"""The defenses by the names that users type."""


def parse_defense(text: str, *, batch_size: int) -> Defense:
    """``NAME[:key=value,...]`` -> a defense.

    Args:
        text: as ``prune:rate=0.99`` or ``sign``; the names are those of ``NAMES``, the keys and
            their defaults those of the functions behind them.
        batch_size: records of a batch; DP-SGD's noise depends on it.

    Raises:
        InputError: the name, a key or a value is not known.

    >>> parse_defense("prune:rate=0.9", batch_size=16).update
    Prune(rate=0.9, whole=False)
    >>> parse_defense("prun", batch_size=16)
    Traceback (most recent call last):
    leakgauge.checks.InputError: defense 'prun' is not known; did you mean 'prune'?
    """
    name, colon, rest = (part.strip() for part in text.partition(":"))
    require(name in NAMES, f"defense {name!r} is not known{nearest(name, NAMES)}")
    make = NAMES[name]
    wanted = dict(inspect.signature(make).parameters)
    if "batch_size" in wanted:
        del wanted["batch_size"]
        make = functools.partial(make, batch_size=batch_size)
    settings: dict[str, Any] = {}
    for part in rest.split(",") if colon else ():
        key, _, value = (side.strip() for side in part.partition("="))
        require(bool(wanted), f"defense {name!r} takes no settings; write it without {part!r}")
        require(key in wanted, f"defense {name!r} has no setting {key!r}{nearest(key, wanted)}")
        require(key not in settings, f"defense {text!r} sets {key!r} twice")
        settings[key] = _number(value, wanted[key].annotation, f"{name}: {key}")
    for key, parameter in wanted.items():
        require(
            key in settings or parameter.default is not parameter.empty,
            f"defense {text!r} does not say {key!r}; for example {name}:{key}=1",
        )
    return make(**settings)


def _number(value: str, kind: Any, what: str) -> Any:
    """A float, int or bool."""
    if kind is bool:
        require(value in ("0", "1"), f"{what} is {value!r}; expected 0 or 1")
        return value == "1"
    try:
        return kind(value)
    except ValueError as error:
        word = "a whole number" if kind is int else "a number"
        raise InputError(f"{what} is {value!r}; expected {word}") from error
