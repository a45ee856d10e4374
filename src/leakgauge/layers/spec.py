"""Settings of the question where in a network it leaks; imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from leakgauge.core.knowledge import STATIC
from leakgauge.core.strict import Real, Truth, Whole
from leakgauge.inference.words import EMPIRICAL, UNIFORM
from leakgauge.layers.catalog import (
    CALIBRATIONS,
    FAMILY,
    HELP,
    HIDE,
    NOTATION,
    PLATT,
    QUESTION,
    VOTES,
)
from leakgauge.results.measurements import ACCUMULATED
from leakgauge.runs.fields import (
    MOST_STEPS,
    hidden_widths,
    image_network,
    image_side,
    initial_weights,
    learning_rate,
    optimizer_field,
)
from leakgauge.runs.setting import ASKING, ATTACK, DATA, DEFENSE, TRAINING, setting
from leakgauge.runs.spec import Spec
from leakgauge.training.catalog import SGD


@dataclass(frozen=True, kw_only=True)
class LayersSpec(Spec):
    """What to infer from the gradients of single layers, and how the model is trained.

    Training, batches and rounds are those of the paper. The attacks are the strongest of a family;
    the paper's is ``adversary=forest``.

    References:
        Mo et al., 2021, section 5.
    """

    aliases: ClassVar[Mapping[str, str]] = {}

    ask: tuple[str, ...] = setting(
        (QUESTION,), "what to ask", ASKING, cells=True, choices=(QUESTION,), option=False
    )
    secret: str | None = setting(None, "the property: a column that should stay private", ASKING)
    value: str | None = setting(
        None,
        "value of the secret that is the property, against all others; default: each value by "
        "itself",
        ASKING,
    )
    adversary: tuple[str, ...] = setting((), f"who infers it: {HELP}", ATTACK, notation=NOTATION)
    side: Whole = image_side(option=False)  # type: ignore[misc]  # for most questions a constant
    layers: tuple[str, ...] = setting((), "name of a layer to examine; default: all")
    coordinates: Whole | None = setting(
        None,
        "random coordinates of each layer that attacks see (48 in the paper's Figure 6); "
        "default: all that are kept",
        ATTACK,
        least=1,
    )
    all_gradients: Truth = setting(
        False,
        "attacks see every gradient of a layer, as in the paper, not 16,384 random ones of each "
        "parameter; refused where they need more memory than --max-memory",
        ATTACK,
    )
    by_user: Truth = setting(
        True,
        "split whole users, if the data name them; false splits records",
        DATA,
    )
    half: Truth = setting(
        False,
        "half of the records of a batch with the property have it, not all; other layers can "
        "lead then",
        ASKING,
    )
    prior: str = setting(
        UNIFORM,
        f"prior of the property: {UNIFORM} (the paper's) or {EMPIRICAL}",
        ASKING,
        choices=(UNIFORM, EMPIRICAL),
    )
    calibration: str = setting(
        PLATT,
        f"calibration of attacks: {PLATT} (on held-out batches) or {VOTES} (softmax of shares of "
        "votes, a reading of the paper; ends at 0.548 bits)",
        ATTACK,
        choices=CALIBRATIONS,
    )
    trials: Whole = setting(1000, "private batches that are attacked", ATTACK, least=1)
    shadow_batches: Whole = setting(1000, "batches that an attack learns from", ATTACK, least=10)
    held_out: Whole = setting(
        400, "further batches that choose and calibrate an attack", ATTACK, least=20
    )
    batch_size: Whole = setting(
        32, "records in a private batch and in a training step", TRAINING, least=1
    )
    rounds: Whole = setting(
        100, "rounds of federated training before the attack", TRAINING, least=0
    )
    snapshots: Whole = setting(
        1,
        "global models that the attacker saves, from that after the last of the rounds on; the "
        "batches it learns from, and those it attacks, are sent at all of them",
        ATTACK,
        least=1,
        most=MOST_STEPS,
    )
    participants: Whole = setting(2, "participants; one attacks another", TRAINING, least=2)
    local_steps: Whole = setting(
        1,
        "steps of a participant in a round; above 1 it is FedAvg, which is not in the paper",
        TRAINING,
        least=1,
    )
    lr: Real = learning_rate(0.01)
    optimizer: str = optimizer_field(
        SGD, "moves the model, at the participants after several local steps"
    )
    hidden: tuple[Whole, ...] = hidden_widths()
    net: str = image_network()
    init: str = initial_weights()
    records: Whole = setting(64, "records to measure the sensitivity on", ATTACK, least=1)
    direction: Truth = setting(
        False, "also measure how the mean gradient differs by the property, over its range", ATTACK
    )
    kernel_records: Whole = setting(
        1000, "records for the kernel estimates; 0: none", ATTACK, least=0
    )
    sigma2: Real = setting(
        0.1, "variance of the kernel estimates' noise; the paper names none", ATTACK, above=0
    )
    under: Real = setting(
        0.1, "advice: largest advantage that an attacker may keep", DEFENSE, above=0
    )
    protect: str = setting(
        HIDE,
        f"advice: protection of a layer: {HIDE} (an enclave, or encryption), or a defense of "
        "that layer alone, as prune:rate=0.99",
        DEFENSE,
    )

    @classmethod
    def knows_adversary(cls, adversary: str) -> bool:
        """Return whether ``--adversary`` may name this one here.

        >>> LayersSpec.knows_adversary("forest:trees=10"), LayersSpec.knows_adversary("gradients")
        (True, False)
        """
        name, _, rest = adversary.partition(":")
        known = tuple(NOTATION.names())
        return name in known or rest.partition(":")[0].isidentifier()

    @property
    def adversaries(self) -> tuple[str, ...]:
        """The attacks among which held-out data choose, in the users' notation."""
        return self.adversary or FAMILY

    @property
    def records_seen(self) -> int:
        """Number of records per observed gradient or update."""
        return self.batch_size * self.local_steps

    def unmeasured(self, knowledge: str, when: int | str) -> str:
        """Return why no figure exists for this knowledge and round; empty if one does."""
        if when != ACCUMULATED:
            return "is about the model after the last round; leave the round out"
        if knowledge != STATIC:
            return "has no defense that an adversary could adapt to; write knowledge: static"
        return ""
