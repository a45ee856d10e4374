"""The games, and the adversaries by the names that users type. Importing it loads no torch."""

import copy
from typing import TYPE_CHECKING

from leakgauge.core.checks import InputError, require, require_choice
from leakgauge.core.registry import Registry

if TYPE_CHECKING:
    from leakgauge.inference.adversaries.adversary import AnyAttack

PROPERTY, ATTRIBUTE, PROPORTION, USER = "property", "attribute", "proportion", "user"
GAMES = (PROPERTY, ATTRIBUTE, PROPORTION, USER)

_PACKAGE = "leakgauge.inference.adversaries"

ADVERSARIES = {
    "forest": f"{_PACKAGE}.forest:Forest",
    "logistic": f"{_PACKAGE}.logistic:Logistic",
    "energies": f"{_PACKAGE}.energies:Energies",
    "discriminant": f"{_PACKAGE}.discriminant:Discriminant",
    "pca-forest": f"{_PACKAGE}.forest:PcaForest",
    "joint": f"{_PACKAGE}.joint:Joint",
    "matching": f"{_PACKAGE}.matching:Matching",
    "encoder": f"{_PACKAGE}.encoder:Encoder",
    "pca-encoder": f"{_PACKAGE}.pca_encoder:PcaEncoder",
    "plda": f"{_PACKAGE}.plda:Plda",
}
"""Where each attack is; it is imported when it is used."""

_ON_BATCHES = ("forest", "logistic", "energies", "discriminant", "pca-forest")
_BY_GAME = {
    PROPERTY: (*_ON_BATCHES, "joint"),
    ATTRIBUTE: (*_ON_BATCHES, "joint", "matching"),
    PROPORTION: ("forest", "logistic", "energies", "pca-forest"),
    USER: ("encoder", "pca-encoder", "plda"),
}

PANEL = "panel"
"""The word of ``--adversary`` for several adversaries whose judgements are also added up."""

_PANEL = {
    PROPERTY: ("forest", "energies", "discriminant"),
    ATTRIBUTE: ("forest", "energies", "discriminant"),
    PROPORTION: ("forest",),
    USER: ("plda",),
}
_UNDER_NOISE = "joint"

OF_FEW_USERS = "pca-encoder"
"""Plays user inference by default where the shadow users are too few for ``plda``."""

HELP = (
    f"{PANEL} (default: forest, energies, discriminant, under noise joint, and their weighted sum; "
    f"for proportion forest, for user plda), {', '.join(ADVERSARIES)}, with settings as "
    "forest:kernel=10; or your own, MODULE:NAME[:key=value,...]"
)
"""For the help of the command line."""

REGISTRY = Registry("adversary", ADVERSARIES, "leakgauge.adversaries")

NOTATION = REGISTRY.notation(PANEL)
"""What users may write for an adversary."""


def adversaries_for(game: str) -> tuple[str, ...]:
    """Names of the built-in adversaries that play a game; the paper's is first.

    >>> adversaries_for("user")
    ('encoder', 'pca-encoder', 'plda')
    """
    return _BY_GAME[game]


def panel_of(game: str, *, all_rounds: bool = False) -> tuple[str, ...]:
    """Names of the adversaries that play a game by default; the paper's, if there, is first.

    In user inference ours plays by default, as it is the stronger one: ``encoder`` is the paper's.

    Args:
        game: its name.
        all_rounds: whether to add the adversary that sees all rounds at once, which the others
            cannot replace where a defense adds noise.

    >>> panel_of("property", all_rounds=True)
    ('forest', 'energies', 'discriminant', 'joint')
    """
    together = all_rounds and _UNDER_NOISE in _BY_GAME[game]
    return (*_PANEL[game], _UNDER_NOISE) if together else _PANEL[game]


def parse_adversary(text: str) -> "AnyAttack":
    """The attack that ``NAME[:key=value,...]`` or ``MODULE:NAME[:key=value,...]`` names.

    NAME is one of ``ADVERSARIES`` or an entry point of the group ``leakgauge.adversaries``. MODULE
    is imported from the working folder too. What is named is the class of an attack, or a function
    that returns one; the keys are its fields or arguments.

    Args:
        text: as ``forest:kernel=10`` or ``my_module:MyAttack``.

    Returns:
        The attack. Its ``name`` is ``text``, so that measurements of two settings stay apart.

    Raises:
        InputError: the name, a key or a value is not known, or what it names is no attack.

    >>> attack = parse_adversary("forest:kernel=10")
    >>> attack.name, attack
    ('forest:kernel=10', Forest(trees=50, kernel=10, batches=2000))
    """
    choice = REGISTRY.read(text)
    attack = copy.copy(choice.call())
    require(
        callable(getattr(attack, "fit", None)),
        f"adversary {text!r} made {type(attack).__name__}; expected an attack with a method fit, "
        "as leakgauge.inference.Attack has",
    )
    try:
        # Attacks are frozen, and most hold their name as a class attribute.
        object.__setattr__(attack, "name", choice.text)
    except AttributeError as error:
        raise InputError(
            f"adversary {text!r} does not let its name be set; make 'name' a plain attribute of "
            "its class"
        ) from error
    made: AnyAttack = attack
    return made


def games_of(attack: "AnyAttack") -> tuple[str, ...]:
    """The games that an attack plays.

    An attack that is not built in says so by its attribute ``games``. Without it, it plays those
    that fit its class: a ``CandidateAttack`` plays user inference, any other attack plays property,
    attribute and proportion inference.

    Raises:
        InputError: ``games`` names one that does not exist.

    >>> games_of(parse_adversary("matching"))
    ('attribute',)
    """
    place = f"{type(attack).__module__}:{type(attack).__qualname__}"
    for name, known in ADVERSARIES.items():
        if place == known:
            return tuple(game for game in GAMES if name in _BY_GAME[game])
    games = getattr(attack, "games", None)
    if games is None:
        return _games_by_class(attack)
    for game in games:
        require_choice(game, f"a game of adversary {attack.name!r}", GAMES)
    return tuple(games)


def _games_by_class(attack: "AnyAttack") -> tuple[str, ...]:
    from leakgauge.inference.adversaries.adversary import CandidateAttack

    if isinstance(attack, CandidateAttack):
        return (USER,)
    return (PROPERTY, ATTRIBUTE, PROPORTION)
