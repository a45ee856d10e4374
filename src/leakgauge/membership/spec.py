"""The settings of membership inference; imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from leakgauge.core.knowledge import ADAPTIVE
from leakgauge.core.strict import Real, Truth, Whole
from leakgauge.membership.catalog import ABOUT, DEFAULT, HELP, NOTATION, REGISTRY, SEPARATE, SHADOW
from leakgauge.results.measurements import ACCUMULATED
from leakgauge.runs.fields import (
    defense_field,
    hidden_widths,
    image_network,
    learning_rate,
    optimizer_field,
)
from leakgauge.runs.setting import ASKING, ATTACK, DATA, TRAINING, setting
from leakgauge.runs.spec import NONE, Spec
from leakgauge.training.catalog import FORMS, LOG

GLOBAL, LOCAL = "global", "local"
PASSIVE, ASCENT, ISOLATE, BOTH = "passive", "ascent", "isolate", "both"
STRATEGIES = (PASSIVE, ASCENT, ISOLATE, BOTH)

ALL, FIRST, SECOND, PARTS = "members", "first", "second", "parts"
APART = (ALL, FIRST, SECOND, PARTS)
"""What an attacker of a fine-tuned model distinguishes: all members from others, members of the
first or of the second training from others, or the first from the second."""


QUESTION = "membership"
LAST_ROUNDS = (0.5, 0.625, 0.75, 0.875, 1.0)
"""Observed rounds of a federation as shares of all rounds: late ones reveal more (Table XII)."""

KNOWN = 2000
"""Default number of known records of each kind: more cost much and add little (Table VI)."""

TARGETS = 100
"""Default number of targets of each kind under ascent (Nasr et al., section IV-E)."""

KNOWN_TOO, TARGETS_ALONE = "known", "targets"
"""Records whose loss an ascent raises."""

ADAM = "adam"
RATE = 0.001


@dataclass(frozen=True, kw_only=True)
class MembershipSpec(Spec):
    """Settings of the target model's training and of the membership attacks.

    The training is that of the fully connected networks in the paper: Adam with rate 0.001, 100
    epochs.

    References:
        Nasr et al., IEEE S&P 2019, section III.
    """

    aliases: ClassVar[Mapping[str, str]] = {}

    ask: tuple[str, ...] = setting(
        (QUESTION,), "what to ask", ASKING, cells=True, choices=(QUESTION,), option=False
    )
    adversary: tuple[str, ...] = setting(
        (), f"attacks: {HELP}", ATTACK, cells=True, notation=NOTATION
    )
    defense: tuple[str, ...] = defense_field("defenses in training")
    rounds: Whole = setting(100, "epochs of the training", TRAINING, least=1)
    batch_size: Whole = setting(64, "records in a training step", TRAINING, least=1)
    lr: Real = learning_rate(RATE)
    optimizer: str = optimizer_field(ADAM, "optimizer of the training")
    hidden: tuple[Whole, ...] = hidden_widths()
    net: str = image_network()
    size: Whole | None = setting(
        None,
        "largest number of records that the model, or each participant, is trained on",
        DATA,
        least=10,
    )
    participants: Whole = setting(
        1, "participants of a federation; 1: central training", TRAINING, least=1
    )
    local_epochs: Whole = setting(
        1,
        "passes of a participant over its records in each round of a federation",
        TRAINING,
        least=1,
    )
    attacker: str = setting(
        GLOBAL,
        "attacker of a federation: global (the server, which sees each upload) or local (a "
        "participant, which sees averages)",
        ATTACK,
        choices=(GLOBAL, LOCAL),
    )
    strategy: str = setting(
        PASSIVE,
        "strategy of a federation's attacker: passive, ascent (raises the targets' loss in "
        "each round), isolate (gives the target participant its own model back) or both",
        ATTACK,
        choices=STRATEGIES,
    )
    ascent: str = setting(
        LOG, "objective of an ascent: log (of the loss), printed or unit", choices=FORMS
    )
    ascent_rate: Real = setting(0.05, "rate of the ascent", ATTACK, above=0)
    raised: str = setting(
        KNOWN_TOO,
        f"records of an ascent: {KNOWN_TOO} (also those that the attack learns from, which then "
        f"behave as targets do) or {TARGETS_ALONE} (as in the paper)",
        ATTACK,
        choices=(KNOWN_TOO, TARGETS_ALONE),
    )
    observed: tuple[Whole, ...] = setting(
        (), "round of a federation that the attacker keeps", ATTACK, least=1
    )
    drops: tuple[Whole, ...] = setting(
        (), "epoch after which the learning rate is divided by 10", TRAINING, least=1
    )
    best_epoch: Truth = setting(
        False,
        "keep the epoch with the best accuracy on validation non-members, not the last",
        TRAINING,
    )
    fine_tune: Real = setting(
        0.0,
        "share of the members in a second training on them alone; 0: one training",
        TRAINING,
        least=0,
    )
    snapshots: Whole = setting(
        1, "snapshots of a fine-tuned model: 1 (after) or 2 (before and after)", least=1
    )
    apart: str = setting(
        ALL,
        "records of a fine-tuned model to distinguish: members (from others), first or second "
        "(records of one training, from others) or parts (the first's from the second's)",
        ATTACK,
        choices=APART,
    )
    known_members: Whole = setting(
        KNOWN, "largest number of members that the attacker knows", ATTACK, least=2
    )
    known_others: Whole = setting(
        KNOWN, "largest number of non-members that the attacker knows", ATTACK, least=2
    )
    targets: Whole | None = setting(
        None,
        "largest number of target records of each kind; also of those that the attacker knows, "
        "where it raises their losses",
        ATTACK,
        least=2,
    )
    checkpoint: tuple[str, ...] = setting(
        (), "weights of a model that exists already, one file a snapshot", option=False
    )
    members: str | None = setting(
        None,
        "records that the checkpoint was trained on: a .npz with x and y, or row numbers of "
        "the task's Dataset in a text file",
        DATA,
    )
    non_members: str | None = setting(
        None, "records that it was not trained on, in the same format", DATA
    )
    at_risk: Whole = setting(
        10, "records most at risk to list by their row number", ATTACK, least=0
    )

    @classmethod
    def knows_adversary(cls, adversary: str) -> bool:
        """Return whether ``--adversary`` may name this attack here.

        >>> knows = MembershipSpec.knows_adversary
        >>> knows("gradients:layers=2"), knows("forest")
        (True, False)
        """
        return adversary.partition(":")[0] in REGISTRY.names()

    @property
    def adversaries(self) -> tuple[str, ...]:
        """The attacks to run, as typed by users."""
        if self.adversary or not self.is_special:
            return self.adversary or DEFAULT
        played = tuple(name for name in DEFAULT if ABOUT[name][0] != SHADOW)
        several = self.participants > 1 or self.snapshots > 1 or len(self.checkpoint) > 1
        return (*played, SEPARATE) if several else played

    @property
    def is_special(self) -> bool:
        """Whether attackers have no records to train their own models on."""
        return bool(self.checkpoint) or self.participants > 1 or self.fine_tune > 0

    @property
    def observed_rounds(self) -> tuple[int, ...]:
        """The rounds of a federation that the attacker keeps, ascending."""
        late = (max(1, round(share * self.rounds)) for share in LAST_ROUNDS)
        return tuple(sorted(set(self.observed or late)))

    @property
    def ascends(self) -> bool:
        """Whether a federation's attacker raises losses."""
        return self.strategy in (ASCENT, BOTH)

    @property
    def most_targets(self) -> int | None:
        """The largest number of target records of each kind; None for all."""
        return TARGETS if self.ascends and self.targets is None else self.targets

    def unmeasured(self, knowledge: str, when: int | str) -> str:
        """Return why no figure exists for this knowledge and round; empty if one exists."""
        if when != ACCUMULATED:
            return "is about the trained model, which has no rounds; leave the round out"
        if knowledge == ADAPTIVE and set(self.defense) == {NONE}:
            return (
                "is about an adaptive adversary, but without a defense only static ones exist; "
                "write knowledge: static, or name a defense in 'where'"
            )
        return ""
