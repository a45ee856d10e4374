"""The settings of inference, with what they refuse and what the data fill in."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from leakgauge.core.checks import require
from leakgauge.core.knowledge import ADAPTIVE
from leakgauge.inference.catalog import PANEL, PROPORTION, REGISTRY, USER
from leakgauge.inference.settings import ASKS, EMPIRICAL, InferenceSettings
from leakgauge.inference.summed import summed
from leakgauge.results.measurements import rounds_of
from leakgauge.runs.spec import NONE
from leakgauge.training.catalog import own_rate, parse_optimizer

if TYPE_CHECKING:  # It loads torch, which --help need not wait for.
    from leakgauge.data.source import Source


@dataclass(frozen=True, kw_only=True)
class InferenceSpec(InferenceSettings):
    """What to infer from gradients, who infers it, and how the model is trained.

    The fields are those of ``InferenceSettings``.
    """

    @classmethod
    def plays(cls, adversary: str) -> bool:
        """Return whether ``--adversary`` may name this one here.

        >>> InferenceSpec.plays("forest:kernel=10"), InferenceSpec.plays("agic")
        (True, False)
        """
        name, _, rest = adversary.partition(":")
        return name in (PANEL, *REGISTRY.names()) or rest.partition(":")[0].isidentifier()

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
            Ratio(self.ratio_bins, self.ratio_counts).check(self.batch_of(PROPORTION))
        require(
            self.by_user or USER not in self.ask,
            "by_user is false, but user inference splits whole users; leave it out",
        )
        check_adversaries(self)
        for ask in self.ask:
            defenses_of(self, ask)
        self._check_optimizer()

    def _check_optimizer(self) -> None:
        parse_optimizer(self.optimizer, lr=self.lr)
        require(
            self.lr == InferenceSettings.lr or own_rate(self.optimizer) is None,
            f"--lr {self.lr:g} and --optimizer {self.optimizer} name two learning rates; leave one "
            "out",
        )

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
        count = rounds_of(when)
        if count is not None and count not in summed(self.rounds):
            known = ", ".join(map(str, summed(self.rounds))) or "none"
            return (
                f"is about the first {count} rounds; of {self.rounds}, the first {known} are added "
                "up; write round: 1 for a single one, and accumulated for all"
            )
        return ""

    def resolve(self, source: "Source") -> Self:
        """Return the settings with the columns' roles and the adversaries filled in.

        Raises:
            InputError: the data cannot answer the question; the message says what would.
        """
        from leakgauge.inference.run.resolving import resolve

        return resolve(self, source)
