"""The settings of inference: options, keys of grids and ``run.yaml`` are made of these fields."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

from leakgauge.core.checks import require
from leakgauge.core.knowledge import ADAPTIVE
from leakgauge.core.strict import Real, Truth, Whole
from leakgauge.defenses.catalog import HELP as DEFENSES_HELP
from leakgauge.inference.catalog import ATTRIBUTE, PROPERTY, PROPORTION, REGISTRY, USER
from leakgauge.inference.catalog import HELP as ADVERSARIES_HELP
from leakgauge.runs.spec import NONE, Setting, Spec

if TYPE_CHECKING:  # It loads torch, which --help need not wait for.
    from leakgauge.data.source import Source

ASKS: Mapping[str, str] = {
    PROPERTY: "is the secret, which the model does not see, inferred from gradients?",
    ATTRIBUTE: "is the secret, which is one of the model's inputs, inferred from gradients?",
    PROPORTION: "is the share of records with the secret inferred from gradients?",
    USER: "is the user whose records are in a batch inferred from gradients?",
}
"""The words of ``--ask``, each with what it asks."""

REUSE, FRESH = "reuse", "fresh"
UNIFORM, EMPIRICAL = "uniform", "empirical"


@dataclass(frozen=True, kw_only=True)
class InferenceSpec(Spec):
    """What to infer from gradients, who infers it, and how the model is trained.

    The defaults are those of Li et al., CCS 2024, where the paper has one. Several values of
    ``ask`` share one split of the records; with ``user`` among them, whole users are split.
    """

    aliases: ClassVar[Mapping[str, str]] = {}

    ask: Annotated[
        tuple[str, ...],
        Setting(f"what to infer: {', '.join(ASKS)}", choices=tuple(ASKS), cells=True),
    ] = (PROPERTY,)
    secret: Annotated[str | None, Setting("column that nobody should learn")] = None
    adversary: Annotated[
        tuple[str, ...],
        Setting(f"who infers it: {ADVERSARIES_HELP}", cells=True),
    ] = ()
    defense: Annotated[
        tuple[str, ...],
        Setting(
            f"what clients do to gradients: {DEFENSES_HELP}",
            cells=True,
            adds=True,
        ),
    ] = (NONE,)
    batch_size: Annotated[
        Whole, Setting("records in a private batch and in a training step", least=1)
    ] = 16
    rounds: Annotated[Whole, Setting("rounds of training; a round is an epoch", least=1)] = 10
    trials: Annotated[Whole, Setting("private batches that are attacked", least=1)] = 5000
    shadow: Annotated[
        Whole,
        Setting(
            "records that the adversary has of its own, at most; not used with --ask user, where "
            "it has the records of 40 % of the users",
            least=1,
        ),
    ] = 1000
    batches: Annotated[
        str,
        Setting(
            f"{REUSE}: one batch in all rounds; {FRESH}: a new batch in each round",
            choices=(REUSE, FRESH),
        ),
    ] = REUSE
    stack: Annotated[
        Truth,
        Setting(
            "weight the rounds by held-out shadow batches, for every adversary but matching and "
            "encoder; slower"
        ),
    ] = False
    ratio_bins: Annotated[Whole, Setting("proportion: number of ranges of the share", least=2)] = 6
    candidates: Annotated[
        Whole, Setting("user: number of users that a batch may belong to", least=2)
    ] = 2
    prior: Annotated[
        str, Setting(f"of the secret: {UNIFORM} or {EMPIRICAL}", choices=(UNIFORM, EMPIRICAL))
    ] = UNIFORM
    lr: Annotated[Real, Setting("learning rate of the training", above=0)] = 0.01
    hidden: Annotated[
        tuple[Whole, ...], Setting("width of a hidden layer of the network for tables", least=1)
    ] = (100,)
    allow_loop: Annotated[
        Truth, Setting("accept a model that torch.func cannot vectorise; slower, exact")
    ] = False

    @classmethod
    def plays(cls, adversary: str) -> bool:
        """Return whether ``--adversary`` may name this one here.

        >>> InferenceSpec.plays("forest:kernel=10"), InferenceSpec.plays("agic")
        (True, False)
        """
        name, _, rest = adversary.partition(":")
        return name in REGISTRY.names() or rest.partition(":")[0].isidentifier()

    def check(self) -> None:
        """Refuse what is wrong whatever the data are.

        Raises:
            InputError: a value is outside its bounds, a name is unknown, or settings contradict
                one another.
        """
        from leakgauge.inference.games.mixing import Ratio
        from leakgauge.inference.run.adversaries import check_adversaries, defenses_of

        super().check()
        require(len(self.ask) > 0, f"--ask is empty; name one of {', '.join(ASKS)}")
        require(len(set(self.ask)) == len(self.ask), f"--ask repeats a word: {', '.join(self.ask)}")
        if self.prior == EMPIRICAL:
            require(
                USER not in self.ask,
                "prior is 'empirical', but the candidates of user inference are equally likely; "
                "take --prior uniform",
            )
            require(
                PROPORTION not in self.ask,
                "prior is 'empirical', but the data have no prior of shares; take --prior uniform",
            )
        if PROPORTION in self.ask:
            Ratio(self.ratio_bins).limits(self.batch_size)
        check_adversaries(self)
        defenses_of(self)

    def unmeasured(self, knowledge: str, when: int | str) -> str:
        """Return why no figure exists for this knowledge and round; empty where one does.

        Args:
            knowledge: of the adversary: static or adaptive.
            when: a round, or all rounds together.
        """
        if knowledge == ADAPTIVE and set(self.defense) == {NONE}:
            return (
                "is about an adaptive adversary, but without a defense only static ones exist; "
                "write knowledge: static, or name a defense in 'where'"
            )
        if isinstance(when, int) and not 1 <= when <= self.rounds:
            return f"is about round {when}; its cells have rounds 1 to {self.rounds}"
        return ""

    def resolve(self, source: "Source") -> Self:
        """Return the settings with the columns' roles and the adversaries filled in.

        Raises:
            InputError: the data cannot answer the question; the message says what would.
        """
        from leakgauge.inference.run.resolving import resolve

        return resolve(self, source)
