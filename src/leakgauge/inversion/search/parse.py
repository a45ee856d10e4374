"""Reads an attack from the text of the command line or of a file."""

from collections.abc import Mapping
from dataclasses import replace
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from leakgauge.core import parsing
from leakgauge.core.parsing import Key
from leakgauge.inversion.search.layer_weights import Weights
from leakgauge.inversion.search.presets import PRESETS
from leakgauge.inversion.search.settings import Settings

ELSEWHERE = ("objective", "iterations", "restarts")
"""Settings that a text does not set: the name sets the first, the others have their own options."""


def parse_attack(
    text: str, *others: str, presets: Mapping[str, Settings] = PRESETS
) -> Settings | None:
    """Return the settings of the attack that ``NAME[:key=value,...]`` names.

    The keys are the fields of ``Settings`` and, where the layers are weighted, those of
    ``LayerWeights`` or ``DepthWeights``.

    Args:
        text: as ``agic`` or ``agic:beta=2,total_variation=0.001``.
        others: names that are no preset and take no settings; for these, None.
        presets: what the names stand for, as ``presets_for`` gives them.

    Raises:
        InputError: the name, a key or a value is not known.

    >>> settings = parse_attack("agic:function=logarithmic,total_variation=0.001")
    >>> settings.total_variation, settings.objective.function
    (0.001, 'logarithmic')
    >>> parse_attack("agic:betta=2")
    Traceback (most recent call last):
    leakgauge.core.checks.InputError: attack 'agic' has no setting 'betta'; did you mean 'beta'?
    """
    known = {name: _kinds(settings) for name, settings in presets.items()}
    name, given = parsing.read(text, known | {other: {} for other in others}, "attack")
    if name in others:
        return None
    settings = presets[name]
    weights = settings.objective
    if isinstance(weights, Weights):
        of_layers = {key: given.pop(key) for key in _kinds_of(type(weights)) if key in given}
        settings = replace(settings, objective=replace(weights, **of_layers))
    return replace(settings, **given)


def keys_of(name: str) -> dict[str, Key]:
    """Return the keys that an attack takes, with its own values as defaults.

    Args:
        name: of a preset, or another name, which takes no keys.

    >>> keys_of("agic")["total_variation"].kind, keys_of("exact")
    (<class 'float'>, {})
    """
    settings = PRESETS.get(name)
    if settings is None:
        return {}
    values = {**vars(settings), **vars(settings.objective)}
    return {key: Key(kind, values[key]) for key, kind in _kinds(settings).items()}


def _kinds(settings: Settings) -> dict[str, type]:
    kinds = _kinds_of(Settings)
    if isinstance(settings.objective, Weights):
        kinds |= _kinds_of(type(settings.objective))
    return kinds


def _kinds_of(settings: type) -> dict[str, type]:
    return {
        name: _kind(hint)
        for name, hint in get_type_hints(settings).items()
        if name not in ELSEWHERE
    }


def _kind(hint: Any) -> type:
    """The type of a value, also of one that may be None; names are words."""
    if get_origin(hint) is Literal:
        return str
    (kind,) = (one for one in get_args(hint) or (hint,) if one is not NoneType)
    assert isinstance(kind, type)
    return kind
