"""Words of the question about kept updates; imports no torch."""

NAME = "federation"
"""The question's name."""

KEPT = "kept-"
"""How the words begin that ask about kept updates."""

RECONSTRUCTION, MEMBERSHIP, PROPERTY = ASKS = tuple(
    f"{KEPT}{one}" for one in ("reconstruction", "membership", "property")
)
"""What is asked of each kept update."""


def plain_word(ask: str) -> str:
    """Return a word as the command of its own takes it.

    >>> plain_word("kept-property")
    'property'
    """
    return ask.removeprefix(KEPT)


TITLES = {
    RECONSTRUCTION: "Can records be rebuilt?",
    MEMBERSHIP: "Is it told whose records were used?",
    PROPERTY: "Is a property of a client's records told?",
}

CLIENT = "client"
"""The secret of the task's Dataset that says whose each record is: 0 nobody's, 1 the first kept
client's, and so on."""

IMAGES = 16
"""Records that a search looks for in an update, at most, unless a user says otherwise."""

SHADOW = 120
"""Clients that a property's attacker simulates to learn from."""

LOSSES = ("loss-after", "loss-drop")
ATTACKS = (*LOSSES, "gradient-norm")
"""Attacks on membership that are played where none is named; validation records choose."""
