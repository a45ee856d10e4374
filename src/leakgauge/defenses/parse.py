"""A defense from a word of the command line or of a file."""

import inspect
from collections.abc import Callable
from typing import Any

from leakgauge.core import parsing as spelling
from leakgauge.core.checks import require
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

_BATCH_SIZE = "batch_size"


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
    leakgauge.core.checks.InputError: defense 'prun' is not known; did you mean 'prune'?
    """
    kinds = {name: _kinds(make) for name, make in NAMES.items()}
    name, settings = spelling.read(text, kinds, "defense")
    wanted = inspect.signature(NAMES[name]).parameters
    for key in kinds[name]:
        require(
            key in settings or wanted[key].default is not inspect.Parameter.empty,
            f"defense {text!r} does not say {key!r}; for example {name}:{key}=1",
        )
    if _BATCH_SIZE in wanted:
        settings[_BATCH_SIZE] = batch_size
    return NAMES[name](**settings)


def _kinds(make: Callable[..., Defense]) -> dict[str, Any]:
    wanted = inspect.signature(make).parameters
    return {key: one.annotation for key, one in wanted.items() if key != _BATCH_SIZE}
