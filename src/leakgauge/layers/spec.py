"""Settings of the question where in a network it leaks; imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

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
from leakgauge.models.named import NETS
from leakgauge.results.measurements import ACCUMULATED
from leakgauge.runs.setting import ASKING, ATTACK, DATA, DEFENSE, TRAINING, Setting
from leakgauge.runs.spec import Spec
from leakgauge.training.catalog import HELP as OPTIMIZERS_HELP
from leakgauge.training.catalog import NOTATION as OPTIMIZERS_NOTATION
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

    ask: Annotated[
        tuple[str, ...],
        Setting("what to ask", cells=True, choices=(QUESTION,), option=False, panel=ASKING),
    ] = (QUESTION,)
    secret: Annotated[
        str | None, Setting("the property: a column that should stay private", panel=ASKING)
    ] = None
    value: Annotated[
        str | None,
        Setting(
            "value of the secret that is the property, against all others; default: each value by "
            "itself",
            panel=ASKING,
        ),
    ] = None
    adversary: Annotated[
        tuple[str, ...], Setting(f"who infers it: {HELP}", panel=ATTACK, notation=NOTATION)
    ] = ()
    layers: Annotated[tuple[str, ...], Setting("name of a layer to examine; default: all")] = ()
    coordinates: Annotated[
        Whole | None,
        Setting(
            "random coordinates of each layer that attacks see (48 in the paper's Figure 6); "
            "default: all",
            least=1,
            panel=ATTACK,
        ),
    ] = None
    by_user: Annotated[
        Truth,
        Setting(
            "split whole users, if the data name them; false splits records, as the paper does",
            panel=DATA,
        ),
    ] = True
    half: Annotated[
        Truth,
        Setting(
            "half of the records of a batch with the property have it, not all; other layers can "
            "lead then",
            panel=ASKING,
        ),
    ] = False
    prior: Annotated[
        str,
        Setting(
            f"prior of the property: {UNIFORM} (the paper's) or {EMPIRICAL}",
            choices=(UNIFORM, EMPIRICAL),
            panel=ASKING,
        ),
    ] = UNIFORM
    calibration: Annotated[
        str,
        Setting(
            f"calibration of attacks: {PLATT} (on held-out batches) or {VOTES} (as printed in the "
            "paper; ends at 0.548 bits)",
            choices=CALIBRATIONS,
            panel=ATTACK,
        ),
    ] = PLATT
    trials: Annotated[
        Whole, Setting("private batches that are attacked", least=1, panel=ATTACK)
    ] = 1000
    shadow_batches: Annotated[
        Whole, Setting("batches that an attack learns from", least=10, panel=ATTACK)
    ] = 1000
    held_out: Annotated[
        Whole,
        Setting("further batches that choose and calibrate an attack", least=20, panel=ATTACK),
    ] = 400
    merge_rare: Annotated[
        Whole,
        Setting(
            "values of the property with fewer rows than this become one; 0: none",
            least=0,
            panel=DATA,
        ),
    ] = 0
    batch_size: Annotated[
        Whole, Setting("records in a private batch and in a training step", least=1, panel=TRAINING)
    ] = 32
    rounds: Annotated[
        Whole, Setting("rounds of federated training before the attack", least=0, panel=TRAINING)
    ] = 100
    participants: Annotated[
        Whole, Setting("participants; one attacks another", least=2, panel=TRAINING)
    ] = 2
    local_steps: Annotated[
        Whole,
        Setting(
            "steps of a participant in a round; above 1 it is FedAvg, which is not in the paper",
            least=1,
            panel=TRAINING,
        ),
    ] = 1
    lr: Annotated[Real, Setting("learning rate of the training", above=0, panel=TRAINING)] = 0.01
    optimizer: Annotated[
        str,
        Setting(
            f"moves the model, at the participants after several local steps: {OPTIMIZERS_HELP}",
            panel=TRAINING,
            notation=OPTIMIZERS_NOTATION,
        ),
    ] = SGD
    hidden: Annotated[
        tuple[Whole, ...],
        Setting("width of a hidden layer of the network for tables", least=1, panel=TRAINING),
    ] = (100,)
    net: Annotated[str, Setting("network for images", choices=NETS, panel=TRAINING)] = "cnn"
    records: Annotated[
        Whole, Setting("records to measure the sensitivity on", least=1, panel=ATTACK)
    ] = 64
    direction: Annotated[
        Truth,
        Setting(
            "also measure how the mean gradient differs by the property, over its range",
            panel=ATTACK,
        ),
    ] = False
    kernel_records: Annotated[
        Whole, Setting("records for the kernel estimates; 0: none", least=0, panel=ATTACK)
    ] = 1000
    sigma2: Annotated[
        Real,
        Setting(
            "variance of the kernel estimates' noise; the paper names none", above=0, panel=ATTACK
        ),
    ] = 0.1
    under: Annotated[
        Real, Setting("advice: largest advantage that an attacker may keep", above=0, panel=DEFENSE)
    ] = 0.1
    protect: Annotated[
        str,
        Setting(
            f"advice: protection of a layer: {HIDE} (an enclave, or encryption), or a defense of "
            "that layer alone, as prune:rate=0.99",
            panel=DEFENSE,
        ),
    ] = HIDE

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
