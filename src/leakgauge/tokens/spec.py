"""Settings of the question when in training it leaks; imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from leakgauge.core.knowledge import STATIC
from leakgauge.core.strict import Real, Truth, Whole
from leakgauge.defenses.catalog import HELP as DEFENSES_HELP
from leakgauge.defenses.catalog import NOTATION as DEFENSES_NOTATION
from leakgauge.models.named import NETS
from leakgauge.runs.setting import ASKING, ATTACK, DATA, DEFENSE, TRAINING, Setting
from leakgauge.runs.spec import NONE, Spec
from leakgauge.tokens.settings import METHODS, PAPER
from leakgauge.tokens.words import (
    AUTOENCODER,
    CHECKPOINT,
    CRITICS,
    INFONCE,
    PAIRS,
    QUESTION,
    SCALES,
    SEPARABLE,
    STANDARDISED,
    STREAM,
    TOKENS,
)
from leakgauge.training.catalog import HELP as OPTIMIZERS_HELP
from leakgauge.training.catalog import NOTATION as OPTIMIZERS_NOTATION

ADAM = "adam"
RATE = 0.001


@dataclass(frozen=True, kw_only=True)
class TimelineSpec(Spec):
    """Training of the model, and checkpoints and methods of the measurement.

    Batches, sub-epochs and the decay of the rate are the paper's for CIFAR-10. Its learning rates
    are missing in the text.

    References:
        Privacy Tokens, section 4 and appendix A.
    """

    aliases: ClassVar[Mapping[str, str]] = {}

    ask: Annotated[
        tuple[str, ...],
        Setting("what to ask", cells=True, choices=(QUESTION,), option=False, panel=ASKING),
    ] = (QUESTION,)
    checkpoints: Annotated[
        tuple[Whole, ...],
        Setting(
            "sub-epochs after which gradients are measured, ascending; 0 is before the training",
            least=0,
            panel=ASKING,
        ),
    ] = (0, 1, 5, 20, 60, 100)
    token: Annotated[
        tuple[str, ...],
        Setting("encoder of gradients as privacy tokens", choices=TOKENS, panel=ATTACK),
    ] = (AUTOENCODER,)
    estimator: Annotated[
        tuple[str, ...],
        Setting(
            f"estimator of the information; {PAPER} is MINE with the paper's settings, in-sample",
            choices=METHODS,
            panel=ATTACK,
        ),
    ] = (INFONCE,)
    critic: Annotated[
        str, Setting("how a critic compares features and tokens", choices=CRITICS, panel=ATTACK)
    ] = SEPARABLE
    scale: Annotated[
        str,
        Setting(
            "what a critic sees of each coordinate of a gradient", choices=SCALES, panel=ATTACK
        ),
    ] = STANDARDISED
    critic_iterations: Annotated[
        Whole, Setting("largest number of iterations of a critic", least=1, panel=ATTACK)
    ] = 600
    pairs: Annotated[
        str,
        Setting(
            f"where pairs of batches and gradients come from: {CHECKPOINT} (batches at each "
            f"checkpoint) or {STREAM} (those of the training up to it)",
            choices=PAIRS,
            panel=ATTACK,
        ),
    ] = CHECKPOINT
    features: Annotated[
        str | None,
        Setting(
            "name of the module that outputs the data features; default: the paper's for its "
            "networks, else the input of the last layer",
            panel=ATTACK,
        ),
    ] = None
    layers: Annotated[
        tuple[str, ...],
        Setting(
            "name of a layer to watch; default: the paper's for its networks, else all with "
            "parameters",
            panel=ATTACK,
        ),
    ] = ()
    width: Annotated[
        Whole,
        Setting(
            "kept values of a layer's gradient; longer gradients are sketched",
            least=1,
            panel=ATTACK,
        ),
    ] = 1024
    records: Annotated[
        Whole,
        Setting(
            "largest number of training records for pairs, unless batches of this size need more",
            least=1,
            panel=ATTACK,
        ),
    ] = 8000
    defense: Annotated[
        tuple[str, ...],
        Setting(
            f"what training does to gradients: {DEFENSES_HELP}",
            cells=True,
            adds=True,
            panel=DEFENSE,
            notation=DEFENSES_NOTATION,
        ),
    ] = (NONE,)
    images: Annotated[
        Whole,
        Setting(
            "images that an attack rebuilds at each checkpoint, each from its own gradient; "
            "0: none",
            least=0,
            panel=ATTACK,
        ),
    ] = 4
    attack: Annotated[
        str,
        Setting(
            "attack that rebuilds images, NAME[:key=value,...], as for reconstruction", panel=ATTACK
        ),
    ] = "inverting-gradients"
    attack_iterations: Annotated[
        Whole, Setting("iterations of that attack", least=1, panel=ATTACK)
    ] = 200
    iterations: Annotated[
        Whole, Setting("training steps in a sub-epoch", least=1, panel=TRAINING)
    ] = 50
    batch_size: Annotated[Whole, Setting("records in a training step", least=1, panel=TRAINING)] = (
        20
    )
    lr: Annotated[Real, Setting("learning rate of the training", above=0, panel=TRAINING)] = RATE
    optimizer: Annotated[
        str,
        Setting(
            f"moves the model: {OPTIMIZERS_HELP}", panel=TRAINING, notation=OPTIMIZERS_NOTATION
        ),
    ] = ADAM
    decay: Annotated[
        Real, Setting("factor of the learning rate at each decay", above=0, most=1, panel=TRAINING)
    ] = 0.9
    decay_every: Annotated[
        Whole, Setting("sub-epochs between two decays", least=1, panel=TRAINING)
    ] = 20
    hidden: Annotated[
        tuple[Whole, ...],
        Setting("width of a hidden layer of the network for tables", least=1, panel=TRAINING),
    ] = (100,)
    net: Annotated[str, Setting("network for images", choices=NETS, panel=TRAINING)] = "lenet-relu"
    by_user: Annotated[Truth, Setting("split whole users, if the data name them", panel=DATA)] = (
        True
    )

    @property
    def defenses(self) -> tuple[str, ...]:
        """The defenses in order, each once."""
        return tuple(dict.fromkeys(self.defense))

    def unmeasured(self, knowledge: str, when: int | str) -> str:
        """Return why no figure exists for this knowledge and sub-epoch; empty if one does."""
        if knowledge != STATIC:
            return "has no adversary that adapts to a defense; write knowledge: static"
        if isinstance(when, int) and when not in self.checkpoints:
            return f"is about sub-epoch {when}, which is not a checkpoint; add it to checkpoints"
        return ""
