"""Settings of the question when in training it leaks; imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from leakgauge.core.knowledge import STATIC
from leakgauge.core.strict import Real, Truth, Whole
from leakgauge.runs.fields import (
    defense_field,
    hidden_widths,
    image_network,
    learning_rate,
    optimizer_field,
)
from leakgauge.runs.setting import ASKING, ATTACK, DATA, TRAINING, setting
from leakgauge.runs.spec import Spec
from leakgauge.tokens.settings import METHODS, PAPER
from leakgauge.tokens.words import (
    ALL_PAIRS,
    AUTOENCODER,
    CHECKPOINT,
    CRITICS,
    INFONCE,
    QUESTION,
    SCALES,
    SEPARABLE,
    STANDARDISED,
    STREAM,
    STREAM_TO_CHECKPOINT,
    TOKENS,
)


@dataclass(frozen=True, kw_only=True)
class TimelineSpec(Spec):
    """Training of the model, and checkpoints and methods of the measurement.

    Batches, sub-epochs and the decay of the rate are the paper's for CIFAR-10. Its learning rates
    are missing in the text.

    References:
        Privacy Tokens, section 4 and appendix A.
    """

    aliases: ClassVar[Mapping[str, str]] = {}

    ask: tuple[str, ...] = setting(
        (QUESTION,), "what to ask", ASKING, cells=True, choices=(QUESTION,), option=False
    )
    checkpoints: tuple[Whole, ...] = setting(
        (0, 1, 5, 20, 60, 100),
        "sub-epochs after which gradients are measured, ascending; 0 is before the training",
        ASKING,
        least=0,
    )
    token: tuple[str, ...] = setting(
        (AUTOENCODER,), "encoder of gradients as privacy tokens", ATTACK, choices=TOKENS
    )
    estimator: tuple[str, ...] = setting(
        (INFONCE,),
        f"estimator of the information; {PAPER} is MINE with the paper's settings, in-sample",
        ATTACK,
        choices=METHODS,
    )
    critic: str = setting(
        SEPARABLE, "how a critic compares features and tokens", ATTACK, choices=CRITICS
    )
    scale: str = setting(
        STANDARDISED, "what a critic sees of each coordinate of a gradient", ATTACK, choices=SCALES
    )
    critic_iterations: Whole = setting(
        600, "largest number of iterations of a critic", ATTACK, least=1
    )
    pairs: str = setting(
        CHECKPOINT,
        f"where pairs of batches and gradients come from: {CHECKPOINT} (batches at each "
        f"checkpoint), {STREAM} (those of the training up to it) or {STREAM_TO_CHECKPOINT} (a "
        "critic learns on those of the whole training, and is evaluated on batches at each "
        "checkpoint)",
        ATTACK,
        choices=ALL_PAIRS,
    )
    features: str | None = setting(
        None,
        "name of the module that outputs the data features; default: the paper's for its "
        "networks, else the input of the last layer",
        ATTACK,
    )
    layers: tuple[str, ...] = setting(
        (),
        "name of a layer to watch; default: the paper's for its networks, else all with parameters",
        ATTACK,
    )
    width: Whole = setting(
        1024, "kept values of a layer's gradient; longer gradients are sketched", ATTACK, least=1
    )
    records: Whole = setting(
        50_000,
        "largest number of training records for pairs, unless batches of this size need more",
        ATTACK,
        least=1,
    )
    defense: tuple[str, ...] = defense_field("what training does to gradients")
    images: Whole = setting(
        4,
        "images that an attack rebuilds at each checkpoint, each from its own gradient; 0: none",
        ATTACK,
        least=0,
    )
    attack: str = setting(
        "inverting-gradients",
        "attack that rebuilds images, NAME[:key=value,...], as for reconstruction",
        ATTACK,
    )
    attack_iterations: Whole = setting(200, "iterations of that attack", ATTACK, least=1)
    iterations: Whole = setting(50, "training steps in a sub-epoch", TRAINING, least=1)
    batch_size: Whole = setting(20, "records in a training step", TRAINING, least=1)
    lr: Real = learning_rate(0.001)
    optimizer: str = optimizer_field("adam", "moves the model")
    decay: Real = setting(
        0.9, "factor of the learning rate at each decay", TRAINING, above=0, most=1
    )
    decay_every: Whole = setting(20, "sub-epochs between two decays", TRAINING, least=1)
    hidden: tuple[Whole, ...] = hidden_widths()
    net: str = image_network("lenet-relu")
    by_user: Truth = setting(True, "split whole users, if the data name them", DATA)

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
