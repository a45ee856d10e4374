"""The settings of membership inference; imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from leakgauge.core.knowledge import ADAPTIVE
from leakgauge.core.strict import Real, Truth, Whole
from leakgauge.defenses.catalog import HELP as DEFENSES_HELP
from leakgauge.defenses.catalog import NOTATION as DEFENSES_NOTATION
from leakgauge.membership.catalog import (
    ABOUT,
    DEFAULT,
    HELP,
    NOTATION,
    REGISTRY,
    SEPARATE,
    SHADOW,
)
from leakgauge.models.named import NETS
from leakgauge.results.measurements import ACCUMULATED
from leakgauge.runs.setting import ASKING, ATTACK, DATA, DEFENSE, TRAINING, Setting
from leakgauge.runs.spec import NONE, Spec
from leakgauge.training.catalog import FORMS, LOG
from leakgauge.training.catalog import HELP as OPTIMIZERS_HELP
from leakgauge.training.catalog import NOTATION as OPTIMIZERS_NOTATION

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

    ask: Annotated[
        tuple[str, ...],
        Setting("what to ask", cells=True, choices=(QUESTION,), option=False, panel=ASKING),
    ] = (QUESTION,)
    adversary: Annotated[
        tuple[str, ...],
        Setting(f"attacks: {HELP}", cells=True, panel=ATTACK, notation=NOTATION),
    ] = ()
    defense: Annotated[
        tuple[str, ...],
        Setting(
            f"defenses in training: {DEFENSES_HELP}",
            cells=True,
            adds=True,
            panel=DEFENSE,
            notation=DEFENSES_NOTATION,
        ),
    ] = (NONE,)
    rounds: Annotated[Whole, Setting("epochs of the training", least=1, panel=TRAINING)] = 100
    batch_size: Annotated[Whole, Setting("records in a training step", least=1, panel=TRAINING)] = (
        64
    )
    lr: Annotated[Real, Setting("learning rate of the training", above=0, panel=TRAINING)] = RATE
    optimizer: Annotated[
        str,
        Setting(
            f"optimizer of the training: {OPTIMIZERS_HELP}",
            panel=TRAINING,
            notation=OPTIMIZERS_NOTATION,
        ),
    ] = ADAM
    hidden: Annotated[
        tuple[Whole, ...],
        Setting("width of a hidden layer of the network for tables", least=1, panel=TRAINING),
    ] = (100,)
    net: Annotated[str, Setting("network for images", choices=NETS, panel=TRAINING)] = "cnn"
    size: Annotated[
        Whole | None,
        Setting(
            "largest number of records that the model, or each participant, is trained on",
            least=10,
            panel=DATA,
        ),
    ] = None
    participants: Annotated[
        Whole,
        Setting("participants of a federation; 1: central training", least=1, panel=TRAINING),
    ] = 1
    local_epochs: Annotated[
        Whole,
        Setting(
            "passes of a participant over its records in each round of a federation",
            least=1,
            panel=TRAINING,
        ),
    ] = 1
    attacker: Annotated[
        str,
        Setting(
            "attacker of a federation: global (the server, which sees each upload) or local (a "
            "participant, which sees averages)",
            choices=(GLOBAL, LOCAL),
            panel=ATTACK,
        ),
    ] = GLOBAL
    strategy: Annotated[
        str,
        Setting(
            "strategy of a federation's attacker: passive, ascent (raises the targets' loss in "
            "each round), isolate (gives the target participant its own model back) or both",
            choices=STRATEGIES,
            panel=ATTACK,
        ),
    ] = PASSIVE
    ascent: Annotated[
        str,
        Setting("objective of an ascent: log (of the loss), printed or unit", choices=FORMS),
    ] = LOG
    ascent_rate: Annotated[Real, Setting("rate of the ascent", above=0, panel=ATTACK)] = 0.05
    observed: Annotated[
        tuple[Whole, ...],
        Setting("round of a federation that the attacker keeps", least=1, panel=ATTACK),
    ] = ()
    drops: Annotated[
        tuple[Whole, ...],
        Setting("epoch after which the learning rate is divided by 10", least=1, panel=TRAINING),
    ] = ()
    best_epoch: Annotated[
        Truth,
        Setting(
            "keep the epoch with the best accuracy on validation non-members, not the last",
            panel=TRAINING,
        ),
    ] = False
    fine_tune: Annotated[
        Real,
        Setting(
            "share of the members in a second training on them alone; 0: one training",
            least=0,
            panel=TRAINING,
        ),
    ] = 0.0
    snapshots: Annotated[
        Whole,
        Setting("snapshots of a fine-tuned model: 1 (after) or 2 (before and after)", least=1),
    ] = 1
    apart: Annotated[
        str,
        Setting(
            "records of a fine-tuned model to distinguish: members (from others), first or second "
            "(records of one training, from others) or parts (the first's from the second's)",
            choices=APART,
            panel=ATTACK,
        ),
    ] = ALL
    known_members: Annotated[
        Whole, Setting("largest number of members that the attacker knows", least=2, panel=ATTACK)
    ] = KNOWN
    known_others: Annotated[
        Whole,
        Setting("largest number of non-members that the attacker knows", least=2, panel=ATTACK),
    ] = KNOWN
    targets: Annotated[
        Whole | None,
        Setting("largest number of target records of each kind", least=2, panel=ATTACK),
    ] = None
    checkpoint: Annotated[
        tuple[str, ...],
        Setting("weights of a model that exists already, one file a snapshot", option=False),
    ] = ()
    members: Annotated[
        str | None,
        Setting(
            "records that the checkpoint was trained on: a .npz with x and y, or row numbers of "
            "the task's Dataset in a text file",
            panel=DATA,
        ),
    ] = None
    non_members: Annotated[
        str | None, Setting("records that it was not trained on, in the same format", panel=DATA)
    ] = None
    at_risk: Annotated[
        Whole, Setting("records most at risk to list by their row number", panel=ATTACK)
    ] = 10

    @classmethod
    def knows_adversary(cls, adversary: str) -> bool:
        """Return whether ``--adversary`` may name this attack here.

        >>> MembershipSpec.knows_adversary("gradients:layers=2"), MembershipSpec.knows_adversary("forest")
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
    def most_targets(self) -> int | None:
        """The largest number of target records of each kind; None for all."""
        ascends = self.strategy in (ASCENT, BOTH)
        return TARGETS if ascends and self.targets is None else self.targets

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
