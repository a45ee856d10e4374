"""The settings of the question about kept updates; imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from leakgauge.core.strict import Real, Truth, Whole
from leakgauge.inversion.methods import FOR_UPDATES, STRONGEST
from leakgauge.inversion.words import INFERRED, KNOWN
from leakgauge.inversion.words import LABELS as LABELINGS
from leakgauge.runs.setting import ASKING, ATTACK, DATA, TRAINING, Setting
from leakgauge.runs.spec import Spec

NAME = "federation"
"""The question's name."""

KEPT = "kept-"
"""Prefix of the question words about kept updates."""

RECONSTRUCTION, MEMBERSHIP, PROPERTY = ASKS = tuple(
    f"{KEPT}{one}" for one in ("reconstruction", "membership", "property")
)
"""The questions about each kept update."""


def plain_word(ask: str) -> str:
    """Return a question word as typed in ``leakgauge federation``.

    >>> plain_word("kept-property")
    'property'
    """
    return ask.removeprefix(KEPT)


TITLES = {
    RECONSTRUCTION: "Can records be rebuilt?",
    MEMBERSHIP: "Does the update reveal whose records were used?",
    PROPERTY: "Does the update reveal a property of a client's records?",
}

CLIENT = "client"
"""The secret of the task's Dataset that names each record's owner: 0 for no client, 1 for the first
kept client, and so on."""

IMAGES = 16
"""Default limit on the number of records that a search looks for in an update."""

SHADOW = 120
"""Default number of simulated clients that an attacker on a property learns from."""

LOSSES = ("loss-after", "loss-drop")
ATTACKS = (*LOSSES, "gradient-norm")
"""Default attacks on membership; validation records choose among them."""


LABELS = tuple(one for one in LABELINGS if one != KNOWN)


@dataclass(frozen=True, kw_only=True)
class FederationSpec(Spec):
    """Questions about kept updates, and clients' training settings that the kept files lack."""

    alone: ClassVar[bool] = True
    aliases: ClassVar[Mapping[str, str]] = {}

    ask: Annotated[
        tuple[str, ...],
        Setting(
            f"{', '.join(ASKS)}; default: all that the task's records allow",
            choices=ASKS,
            cells=True,
            panel=ASKING,
        ),
    ] = ()
    kept: Annotated[str, Setting("folder in which updates were kept", option=False, panel=DATA)] = (
        ""
    )
    only_round: Annotated[
        tuple[Whole, ...], Setting("round to attack; default: all", panel=ASKING)
    ] = ()
    only_client: Annotated[
        tuple[str, ...], Setting("client to attack; default: all", panel=ASKING)
    ] = ()
    secret: Annotated[
        str | None,
        Setting("the property: a secret of the task's Dataset, else its first", panel=ASKING),
    ] = None
    local_lr: Annotated[
        Real | None, Setting("learning rate of clients", above=0, panel=TRAINING)
    ] = None
    batch_size: Annotated[
        Whole | None, Setting("records in a client's step", least=1, panel=TRAINING)
    ] = None
    local_epochs: Annotated[
        Whole | None,
        Setting("passes of a client over its records in a round", least=1, panel=TRAINING),
    ] = None
    local_steps: Annotated[
        Whole | None,
        Setting("steps of a client in a round, in place of passes", least=1, panel=TRAINING),
    ] = None
    momentum: Annotated[
        Real | None, Setting("momentum of clients' SGD", least=0, panel=TRAINING)
    ] = None
    method: Annotated[
        str,
        Setting(
            f"attack for records: {', '.join(FOR_UPDATES)}, with settings; or your own, "
            "MODULE:NAME",
            panel=ATTACK,
        ),
    ] = STRONGEST
    images: Annotated[
        Whole | None,
        Setting(
            f"records to look for in an update; default: those of the client, at most {IMAGES}",
            least=1,
            panel=ATTACK,
        ),
    ] = None
    iterations: Annotated[
        Whole | None, Setting("iterations of the search", least=1, panel=ATTACK)
    ] = None
    restarts: Annotated[Whole, Setting("restarts of the search", least=1, panel=ATTACK)] = 1
    labels: Annotated[str, Setting("how labels are inferred", choices=LABELS, panel=ATTACK)] = (
        INFERRED
    )
    simulate: Annotated[
        Truth,
        Setting(
            "simulate the local steps, with momentum or without: slower, but right at any learning "
            "rate",
            panel=ATTACK,
        ),
    ] = False
    adversary: Annotated[
        tuple[str, ...],
        Setting(
            f"attack on membership: {', '.join(LOSSES)}, or as leakgauge audit names them; "
            "validation records choose among several",
            panel=ATTACK,
        ),
    ] = ()
    shadow: Annotated[
        Whole,
        Setting(
            "clients that the attacker on the property simulates to learn from", least=40,
            panel=ATTACK,
        ),
    ] = SHADOW  # fmt: skip
    redact: Annotated[Truth, Setting("neither keep nor show any record, true or rebuilt")] = False
    files: Annotated[str, Setting("sha256 of what was kept", option=False)] = ""
