"""The settings of the question whose records were used; imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

from leakgauge.core.checks import require
from leakgauge.core.knowledge import ADAPTIVE
from leakgauge.core.strict import Real, Whole
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
from leakgauge.results.measurements import ACCUMULATED
from leakgauge.runs.setting import ASKING, ATTACK, DATA, DEFENSE, TRAINING, Setting
from leakgauge.runs.spec import NONE, Spec
from leakgauge.training.catalog import HELP as OPTIMIZERS_HELP
from leakgauge.training.catalog import NOTATION as OPTIMIZERS_NOTATION
from leakgauge.training.catalog import own_rate, parse_optimizer

if TYPE_CHECKING:  # It loads torch, which --help need not wait for.
    from leakgauge.data.source import Source

QUESTION = "membership"
ADAM = "adam"
RATE = 0.001


@dataclass(frozen=True, kw_only=True)
class MembershipSpec(Spec):
    """How a model is trained on some of the records, and who infers on which.

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
        Setting(f"who infers it: {HELP}", cells=True, panel=ATTACK, notation=NOTATION),
    ] = ()
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
    rounds: Annotated[Whole, Setting("epochs of the training", least=1, panel=TRAINING)] = 100
    batch_size: Annotated[Whole, Setting("records in a training step", least=1, panel=TRAINING)] = (
        64
    )
    lr: Annotated[Real, Setting("learning rate of the training", above=0, panel=TRAINING)] = RATE
    optimizer: Annotated[
        str,
        Setting(
            f"moves the model: {OPTIMIZERS_HELP}", panel=TRAINING, notation=OPTIMIZERS_NOTATION
        ),
    ] = ADAM
    hidden: Annotated[
        tuple[Whole, ...],
        Setting("width of a hidden layer of the network for tables", least=1, panel=TRAINING),
    ] = (100,)
    size: Annotated[
        Whole | None,
        Setting(
            "records that the model is trained on, at most; as many others are its non-members",
            least=10,
            panel=DATA,
        ),
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
        str | None, Setting("records that it was not trained on, likewise", panel=DATA)
    ] = None
    at_risk: Annotated[
        Whole, Setting("records most at risk to list by their row number", panel=ATTACK)
    ] = 10

    @classmethod
    def plays(cls, adversary: str) -> bool:
        """Return whether ``--adversary`` may name this one here.

        >>> MembershipSpec.plays("gradients:layers=2"), MembershipSpec.plays("forest")
        (True, False)
        """
        return adversary.partition(":")[0] in REGISTRY.names()

    @property
    def adversaries(self) -> tuple[str, ...]:
        """The attacks that are played, as users type them."""
        if self.adversary or not self.checkpoint:
            return self.adversary or DEFAULT
        played = tuple(name for name in DEFAULT if ABOUT[name][0] != SHADOW)
        return (*played, SEPARATE) if len(self.checkpoint) > 1 else played

    def check(self) -> None:
        """Refuse what is wrong for any data.

        Raises:
            InputError: a value is outside its bounds, a name is unknown, or settings contradict
                one another.
        """
        from leakgauge.membership.run.playing import attacks_of, defenses_of

        super().check()
        attacks_of(self)
        defenses_of(self)
        parse_optimizer(self.optimizer, lr=self.lr)
        self._check_checkpoint()
        require(
            self.lr == RATE or own_rate(self.optimizer) is None,
            f"--lr {self.lr:g} and --optimizer {self.optimizer} name two learning rates; leave one "
            "out",
        )

    def _check_checkpoint(self) -> None:
        """Refuse what does not belong to a model that exists already."""
        given = (self.checkpoint, self.members, self.non_members)
        if not any(given):
            return
        require(
            all(given) and self.task is not None,
            "a CHECKPOINT, --members, --non-members and --task go together; give all of them",
        )
        require(
            set(self.defense) == {NONE},
            "a defense changes the training, and a CHECKPOINT is trained; leave --defense out",
        )
        shadow = next((one for one in self.adversaries if _needs_shadow(one)), None)
        require(
            shadow is None,
            f"attack {shadow!r} trains models of its own on other records, and a CHECKPOINT comes "
            "with none; name another --adversary",
        )

    def unmeasured(self, knowledge: str, when: int | str) -> str:
        """Return why no figure exists for this knowledge and round; empty where one does."""
        if when != ACCUMULATED:
            return "is about the trained model, which has no rounds; leave the round out"
        if knowledge == ADAPTIVE and set(self.defense) == {NONE}:
            return (
                "is about an adaptive adversary, but without a defense only static ones exist; "
                "write knowledge: static, or name a defense in 'where'"
            )
        return ""

    def resolve(self, source: "Source") -> Self:
        """Return the settings with the columns' roles filled in.

        Raises:
            InputError: the data cannot answer the question; the message says what would.
        """
        from leakgauge.membership.run.preparing import resolved, split_of

        spec = replace(self, **resolved(self, source))
        split_of(spec, source)
        return spec


def _needs_shadow(adversary: str) -> bool:
    knows, *_ = ABOUT.get(adversary.partition(":")[0], (None,))
    return knows == SHADOW
