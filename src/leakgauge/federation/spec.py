"""The settings of the question about kept updates; imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from leakgauge.core.strict import Real, Truth, Whole
from leakgauge.inversion.methods import FOR_UPDATES, STRONGEST
from leakgauge.inversion.words import FROM_BUFFERS, INFERRED, KNOWN, PROXY
from leakgauge.inversion.words import LABELS as LABELINGS
from leakgauge.runs.fields import MOST_STEPS
from leakgauge.runs.setting import ASKING, ATTACK, DATA, TRAINING, setting
from leakgauge.runs.spec import NONE, Spec
from leakgauge.training.catalog import HELP as OPTIMIZERS_HELP

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
"""The secret of the task's Dataset that names each record's owner: 0 for no client, 1 for partition
0, and so on."""

IMAGES = 16
"""Default limit on the number of records that a search looks for in an update."""

SHADOW = 120
"""Default number of simulated clients that an attacker on a property learns from."""

LOSSES = ("loss-after", "loss-drop")
ATTACKS = (*LOSSES, "gradient-norm")
"""Default attacks on membership; they are summed with weights from validation records."""

FEDMIA_LOSS, FEDMIA_COSINE = OVER_ROUNDS = "fedmia-loss", "fedmia-cosine"
"""Attacks on membership over all rounds, which compare a client with the others."""

FEWEST_CLIENTS = 3
"""Smallest number of clients in a round for these attacks."""


LABELS = tuple(one for one in LABELINGS if one != KNOWN)

STATISTICS = (FROM_BUFFERS, PROXY, NONE)
"""How an attacker knows the statistics of BatchNorm: no client grants them."""

STARTS = 3
"""Default number of starts of a search."""


@dataclass(frozen=True, kw_only=True)
class FederationSpec(Spec):
    """Questions about kept updates, and clients' training settings that the kept files lack."""

    alone: ClassVar[bool] = True
    aliases: ClassVar[Mapping[str, str]] = {}

    ask: tuple[str, ...] = setting(
        (),
        f"{', '.join(ASKS)}; default: all that the task's records allow",
        ASKING,
        choices=ASKS,
        cells=True,
    )
    kept: tuple[str, ...] = setting((), "folders in which updates were kept", DATA, option=False)
    owner: Mapping[str, Whole] = setting(
        {},
        "whose records are whose, as CLIENT=NUMBER: the number in the secret 'client' of the "
        "task's Dataset; default: that of partition 0 is 1, and so on",
        DATA,
    )
    only_round: tuple[Whole, ...] = setting((), "round to attack; default: all", ASKING)
    only_client: tuple[str, ...] = setting((), "client to attack; default: all", ASKING)
    secret: str | None = setting(
        None, "the property: a secret of the task's Dataset, else its first", ASKING
    )
    local_lr: Real | None = setting(None, "learning rate of clients", TRAINING, above=0)
    batch_size: Whole | None = setting(None, "records in a client's step", TRAINING, least=1)
    local_epochs: Whole | None = setting(
        None, "passes of a client over its records in a round", TRAINING, least=1, most=MOST_STEPS
    )
    local_steps: Whole | None = setting(
        None,
        "steps of a client in a round, in place of passes",
        TRAINING,
        least=1,
        most=100 * MOST_STEPS,
    )
    momentum: Real | None = setting(None, "momentum of clients' SGD", TRAINING, least=0)
    local_optimizer: str | None = setting(
        None,
        f"optimizer of clients: {OPTIMIZERS_HELP}; by default the one that the kept files name, "
        "or that the update shows",
        TRAINING,
    )
    method: str = setting(
        STRONGEST,
        f"attack for records: {', '.join(FOR_UPDATES)}, with settings; or your own, MODULE:NAME",
        ATTACK,
    )
    images: Whole | None = setting(
        None,
        f"records to look for in an update; default: those of the client, at most {IMAGES}",
        ATTACK,
        least=1,
    )
    iterations: Whole | None = setting(None, "iterations of the search", ATTACK, least=1)
    restarts: Whole | None = setting(
        None,
        "starts of the search; the one with the smallest loss counts, and the interval covers "
        f"them; default: {STARTS}, or 1 where a start takes minutes",
        ATTACK,
        least=1,
        most=1000,
    )
    labels: str = setting(INFERRED, "how labels are inferred", ATTACK, choices=LABELS)
    statistics: str | None = setting(
        None,
        "how the attacker knows the statistics of batches in BatchNorm layers in training mode: "
        "inferred (from the running statistics that were sent; the default where they were), proxy "
        "(from public records) or none",
        ATTACK,
        choices=STATISTICS,
    )
    simulate: Truth = setting(
        False,
        "simulate the local steps also where that takes long; by default up to 10 steps on one "
        "batch are simulated, and all of Adam and its like",
        ATTACK,
    )
    no_simulate: Truth = setting(
        False,
        "take several local steps for one gradient: fast, but wrong where the gradient changes "
        "from step to step",
        ATTACK,
    )
    adversary: tuple[str, ...] = setting(
        (),
        f"attack on membership: {', '.join(LOSSES)}, or as leakgauge audit names them; over all "
        f"rounds {' and '.join(OVER_ROUNDS)}, from {FEWEST_CLIENTS} clients on; several are "
        "summed, with weights from validation records",
        ATTACK,
    )
    shadow: Whole = setting(
        SHADOW,
        "clients that the attacker on the property simulates to learn from",
        ATTACK,
        least=40,
    )
    filters: str | None = setting(
        None,
        "configuration that names the clients' privacy filters, as leakgauge promise reads it; "
        "what is wrong with them is said, and no figure changes",
        DATA,
    )
    redact: Truth = setting(False, "neither keep nor show any record, true or rebuilt")
    files: str = setting("", "sha256 of what was kept", option=False)
