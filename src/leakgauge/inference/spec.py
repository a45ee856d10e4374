"""The settings of inference, from which options, grid keys and ``run.yaml`` are made."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from leakgauge.core.knowledge import ADAPTIVE
from leakgauge.core.strict import Real, Truth, Whole
from leakgauge.inference.catalog import ATTRIBUTE, PANEL, PROPERTY, PROPORTION, REGISTRY, USER
from leakgauge.inference.catalog import HELP as ADVERSARIES_HELP
from leakgauge.inference.catalog import NOTATION as ADVERSARIES_NOTATION
from leakgauge.inference.words import (
    BLOCKS,
    COUNT_RULES,
    EMPIRICAL,
    FLOOR,
    FRESH,
    IID,
    REUSE,
    UNIFORM,
    WITHIN,
    summed,
)
from leakgauge.results.measurements import rounds_of
from leakgauge.runs.fields import (
    defense_field,
    hidden_widths,
    image_network,
    learning_rate,
    optimizer_field,
)
from leakgauge.runs.setting import ASKING, ATTACK, DATA, RUN, TRAINING, setting
from leakgauge.runs.spec import NONE, Spec
from leakgauge.training.catalog import SGD

ASKS: Mapping[str, str] = {
    PROPERTY: "is the secret, which the model does not see, inferred from gradients?",
    ATTRIBUTE: "is the secret, which is one of the model's inputs, inferred from gradients?",
    PROPORTION: "is the share of records with the secret inferred from gradients?",
    USER: "is the user whose records are in a batch inferred from gradients?",
}
"""The words of ``--ask``, each with what it asks."""

BATCH_SIZES: Mapping[str, int] = {PROPERTY: 16, ATTRIBUTE: 16, PROPORTION: 128, USER: 8}
"""Default number of records in a batch (Li et al., CCS 2024, section 5.1.4)."""

TRIALS: Mapping[str, int] = {PROPERTY: 5000, ATTRIBUTE: 5000, PROPORTION: 5000, USER: 1000}
"""Default number of trials (same section)."""

MOST_TRIALS = 250_000
"""Largest number of trials: to draw them takes 5 s, and intervals are about .005 wide."""


@dataclass(frozen=True, kw_only=True)
class InferenceSpec(Spec):
    """The secrets to infer from gradients, the adversaries, and the training of the model.

    The defaults are those of Li et al., CCS 2024, if the paper states them. Several values of
    ``ask`` share one split of the records; with ``user`` among them, whole users are split.
    """

    aliases: ClassVar[Mapping[str, str]] = {}

    ask: tuple[str, ...] = setting(
        (PROPERTY,), f"what to infer: {', '.join(ASKS)}", ASKING, choices=tuple(ASKS), cells=True
    )
    secret: str | None = setting(
        None, "column that must stay private; repeat it to ask about each", ASKING, each=True
    )
    adversary: tuple[str, ...] = setting(
        (), f"who infers it: {ADVERSARIES_HELP}", ATTACK, cells=True, notation=ADVERSARIES_NOTATION
    )
    defense: tuple[str, ...] = defense_field("what clients do to gradients")
    batch_size: Whole | None = setting(
        None,
        "records in a private batch and in a training step (default "
        f"{BATCH_SIZES[PROPERTY]}; proportion: {BATCH_SIZES[PROPORTION]}, user: "
        f"{BATCH_SIZES[USER]})",
        TRAINING,
        least=1,
    )
    rounds: Whole = setting(10, "rounds of training; a round is an epoch", TRAINING, least=1)
    trials: Whole | None = setting(
        None,
        f"private batches that are attacked (default {TRIALS[PROPERTY]}; user: {TRIALS[USER]})",
        ATTACK,
        least=1,
        most=MOST_TRIALS,
    )
    private: Whole | None = setting(
        None,
        "maximum number of records to train on and to attack; default: all; not used with "
        "--ask user",
        DATA,
        least=1,
    )
    shadow: Whole = setting(
        1000,
        "maximum number of records that the adversary has; not used with --ask user, which has "
        "--shadow-users",
        ATTACK,
        least=1,
    )
    by_user: Truth = setting(
        True,
        "split whole users, if the data name them; false splits records, as the paper does "
        "except for --ask user",
        DATA,
        option=False,
    )
    seeds: Whole = setting(
        1,
        "train and attack with this many seeds, from --seed on; figures are means, and "
        "intervals cover other trainings too",
        RUN,
        least=1,
        most=100,
    )
    batches: str = setting(
        REUSE,
        f"{REUSE}: one batch in all rounds; {FRESH}: a new batch in each round",
        TRAINING,
        choices=(REUSE, FRESH),
    )
    draw: str = setting(
        BLOCKS,
        f"{BLOCKS}: a batch comes from one of several disjoint groups of the private records, and "
        f"holds no record twice; {IID}: its records are independent draws from all private "
        "records, as in the paper, and larger batches fit; intervals then leave out one record, "
        "or user, at a time",
        TRAINING,
        choices=(BLOCKS, IID),
    )
    stack: Truth = setting(
        False,
        "weight the rounds by held-out shadow batches, for every adversary but matching, "
        "encoder and pca-encoder; slower",
        ATTACK,
    )
    ratio_bins: Whole = setting(6, "proportion: number of ranges of the share", ASKING, least=2)
    ratio_of: str | None = setting(
        None,
        "proportion: value of the secret whose share is inferred, against all others; default: "
        "the second of two values, the most frequent of more",
        ASKING,
    )
    ratio_counts: str = setting(
        FLOOR,
        f"proportion: {FLOOR}: share times batch size, rounded down, as in the paper; "
        f"{WITHIN}: never below the range of the share",
        ASKING,
        choices=COUNT_RULES,
    )
    candidates: Whole = setting(
        5, "user: number of users that a batch may belong to", ASKING, least=2
    )
    private_users: Whole = setting(
        0,
        "user: maximum number of users to train on; 0: 40 % of those with two batches of records",
        DATA,
        least=0,
    )
    shadow_users: Whole = setting(
        0,
        "user: maximum number of users whose records the adversary has; 0: also 40 %",
        ATTACK,
        least=0,
    )
    prior: str = setting(
        UNIFORM,
        f"prior of the secret: {UNIFORM} or {EMPIRICAL}",
        ASKING,
        choices=(UNIFORM, EMPIRICAL),
    )
    lr: Real = learning_rate(0.01)
    optimizer: str = optimizer_field(SGD, "moves the model by the gradients that clients send")
    hidden: tuple[Whole, ...] = hidden_widths()
    net: str = image_network()
    allow_loop: Truth = setting(
        False, "accept a model that torch.func cannot vectorise; slower, exact", TRAINING
    )

    def batch_of(self, ask: str) -> int:
        """Return the number of records in a batch of a game.

        >>> InferenceSpec().batch_of("user"), InferenceSpec(batch_size=4).batch_of("user")
        (8, 4)
        """
        return BATCH_SIZES[ask] if self.batch_size is None else self.batch_size

    def secret_of(self, ask: str) -> str:
        """Return the name of the secret of a game; in user inference that of the users.

        >>> InferenceSpec(secret="sex").secret_of("property"), InferenceSpec().secret_of("user")
        ('sex', 'user')
        """
        return (self.group or USER) if ask == USER else self.secret_column

    @property
    def secret_column(self) -> str:
        """Name of the secret; empty if user inference alone needs none."""
        return self.secret or ""

    def trials_of(self, ask: str) -> int:
        """Return the number of trials of a game.

        >>> InferenceSpec().trials_of("user"), InferenceSpec(trials=200).trials_of("user")
        (1000, 200)
        """
        return TRIALS[ask] if self.trials is None else self.trials

    @classmethod
    def knows_adversary(cls, adversary: str) -> bool:
        """Return whether ``--adversary`` accepts this name.

        >>> InferenceSpec.knows_adversary("forest:kernel=10"), InferenceSpec.knows_adversary("agic")
        (True, False)
        """
        name, _, rest = adversary.partition(":")
        return name in (PANEL, *REGISTRY.names()) or rest.partition(":")[0].isidentifier()

    def unmeasured(self, knowledge: str, when: int | str) -> str:
        """Return why no figure exists for this knowledge and round; empty if one exists.

        Args:
            knowledge: static or adaptive, the adversary's knowledge of the defense.
            when: a round, or all rounds together.
        """
        if knowledge == ADAPTIVE and set(self.defense) == {NONE}:
            return (
                "is about an adaptive adversary, but without a defense only static ones exist; "
                "write knowledge: static, or name a defense in 'where'"
            )
        if isinstance(when, int) and not 1 <= when <= self.rounds:
            return f"is about round {when}; its cells have rounds 1 to {self.rounds}"
        count = rounds_of(when)
        if count is not None and count not in summed(self.rounds):
            known = ", ".join(map(str, summed(self.rounds))) or "none"
            return (
                f"is about the first {count} rounds; of {self.rounds} rounds, sums exist for the "
                f"first {known}; write round: 1 for a single one, and accumulated for all"
            )
        return ""
