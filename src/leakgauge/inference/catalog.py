"""The games, and the adversaries by the names that users type. Importing it loads no torch."""

import copy
from collections.abc import Sequence
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
    "crossed-forest": f"{_PACKAGE}.crossed_forest:CrossedForest",
    "logistic": f"{_PACKAGE}.logistic:Logistic",
    "energies": f"{_PACKAGE}.energies:Energies",
    "discriminant": f"{_PACKAGE}.discriminant:Discriminant",
    "quotients": f"{_PACKAGE}.quotients:QuotientReader",
    "pca-forest": f"{_PACKAGE}.forest:PcaForest",
    "joint": f"{_PACKAGE}.joint:Joint",
    "matching": f"{_PACKAGE}.matching:Matching",
    "encoder": f"{_PACKAGE}.encoder:Encoder",
    "pca-encoder": f"{_PACKAGE}.pca_encoder:PcaEncoder",
    "plda": f"{_PACKAGE}.plda:Plda",
}
"""Address of each attack, imported at first use."""

_ON_BATCHES = ("forest", "logistic", "energies", "discriminant", "quotients", "pca-forest")
_BY_GAME = {
    PROPERTY: (*_ON_BATCHES, "joint", "crossed-forest"),
    ATTRIBUTE: (*_ON_BATCHES, "joint", "matching", "crossed-forest"),
    PROPORTION: ("forest", "logistic", "energies", "quotients", "pca-forest"),
    USER: ("encoder", "pca-encoder", "plda"),
}

PANEL = "panel"
"""The word of ``--adversary`` for several adversaries and their sum."""

_CROSSED = "crossed-forest"
_PANEL = {
    PROPERTY: (_CROSSED, "energies", "discriminant"),
    ATTRIBUTE: (_CROSSED, "energies", "discriminant"),
    PROPORTION: ("forest",),
    USER: ("plda",),
}
_UNDER_NOISE = "joint"
_OF_A_LAYER = "quotients"
ROUND_MEANS = "round-means"
"""Name of the part of the panel's sum that reads the mean input from all rounds."""
_READERS = (_OF_A_LAYER, ROUND_MEANS)
_UNPOOLED, _DISCRIMINANT = f"{_CROSSED}:kernel=1", "discriminant"

SMALL = 20_000
"""Largest number of parameters of a network whose panel has a forest without pooling."""

OF_FEW_USERS = "pca-encoder"
"""Default adversary of user inference if the shadow users are too few for ``plda``."""

HELP = (
    f"{PANEL} (default: {_CROSSED}, energies, discriminant, for at most {SMALL:,} parameters "
    f"{_UNPOOLED}, {_OF_A_LAYER} if a layer has a bias, under noise joint, and their sum; for "
    "proportion forest, for user plda), "
    f"{', '.join(ADVERSARIES)}, with settings as forest:kernel=10; or your own, "
    "MODULE:NAME[:key=value,...]"
)
"""Help text of the command line."""

REGISTRY = Registry("adversary", ADVERSARIES, "leakgauge.adversaries")

NOTATION = REGISTRY.notation(PANEL)
"""Notation of adversaries on the command line and in files."""


def adversaries_for(game: str) -> tuple[str, ...]:
    """Return the names of the built-in adversaries of a game; that of the paper is first.

    >>> adversaries_for("user")
    ('encoder', 'pca-encoder', 'plda')
    """
    return _BY_GAME[game]


def panel_of(
    game: str,
    *,
    all_rounds: bool = False,
    parameters: int | None = None,
    defended: bool = False,
    divides: bool = False,
) -> tuple[str, ...]:
    """Return the names of the default adversaries of a game.

    Its forests judge themselves with the trees that they attack with, which the paper's ``forest``
    cannot; ``benchmarks/panel_trees.py`` compares both. The default of user inference is stronger
    than that of the paper, ``encoder``. For a small network a forest without pooling replaces
    ``discriminant``, which adds to it under a defense alone (``docs/explanations/adversaries.md``
    has the figures).

    Args:
        game: name of the game.
        all_rounds: whether to add the adversary on all rounds at once, which the others cannot
            replace if a defense adds noise.
        parameters: number of parameters of the model; None if it is not known yet.
        defended: whether a defense changes the gradients.
        divides: whether a layer of the model has a weight and a bias, whose gradients can be
            divided.

    >>> panel_of("property", all_rounds=True)
    ('crossed-forest', 'energies', 'discriminant', 'joint')
    >>> panel_of("property", parameters=500)
    ('crossed-forest', 'energies', 'crossed-forest:kernel=1')
    """
    panel = _PANEL[game]
    several = len(panel) > 1
    if several and parameters is not None and parameters <= SMALL:
        kept = panel if defended else tuple(name for name in panel if name != _DISCRIMINANT)
        panel = (*kept, _UNPOOLED)
    if divides and several:
        panel = (*panel, _OF_A_LAYER)
    if all_rounds and _UNDER_NOISE in _BY_GAME[game]:
        panel = (*panel, _UNDER_NOISE)
    return panel


def shares_of(panel: Sequence[str]) -> tuple[float, ...]:
    """Return the share of each member of a panel in their sum, before held-out data weigh them.

    ``quotients`` reads the records of a batch from each round, ``ROUND_MEANS`` from all rounds
    together, and all others read the shape of its gradient. Each way that takes part counts alike.

    >>> shares_of(["crossed-forest", "energies", "quotients"])
    (0.25, 0.25, 0.5)
    """
    others = [name for name in panel if name not in _READERS]
    ways = len(panel) - len(others) + bool(others)
    return tuple(1 / ways / (1 if name in _READERS else len(others)) for name in panel)


def parse_adversary(text: str) -> "AnyAttack":
    """Return the attack named by ``NAME[:key=value,...]`` or ``MODULE:NAME[:key=value,...]``.

    NAME is one of ``ADVERSARIES`` or an entry point of the group ``leakgauge.adversaries``. MODULE
    is imported from the working folder too. The name refers to the class of an attack, or a
    function that returns one; the keys are its fields or arguments.

    Args:
        text: for example ``forest:kernel=10`` or ``my_module:MyAttack``.

    Returns:
        The attack. Its ``name`` is ``text``, so that measurements of two settings stay apart.

    Raises:
        InputError: the name, a key or a value is unknown, or the object is not an attack.

    >>> attack = parse_adversary("forest:kernel=10")
    >>> attack.name, attack
    ('forest:kernel=10', Forest(trees=50, kernel=10, batches=2000, whole=False))
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
    """Return the games of an attack.

    The attribute ``games`` of an attack that is not built in lists them. Without it, a
    ``CandidateAttack`` is for user inference, any other attack for property, attribute and
    proportion inference.

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
        from leakgauge.inference.adversaries.adversary import CandidateAttack

        by_batch = (PROPERTY, ATTRIBUTE, PROPORTION)
        return (USER,) if isinstance(attack, CandidateAttack) else by_batch
    for game in games:
        require_choice(game, f"a game of adversary {attack.name!r}", GAMES)
    return tuple(games)
