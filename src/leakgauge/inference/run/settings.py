"""How an audit plays."""

from dataclasses import dataclass

from leakgauge.core.checks import require, require_choice, require_count, require_positive
from leakgauge.gradients import MAX_BYTES
from leakgauge.inference.settings import EMPIRICAL, FRESH, REUSE, UNIFORM
from leakgauge.inference.words import COUNT_RULES, FLOOR
from leakgauge.training.catalog import SGD


@dataclass(frozen=True)
class Settings:
    """How an audit plays; the defaults are those of Li et al., CCS 2024, where the paper has one.

    Attributes:
        secret: the name of the secret; in user inference that of the users.
        batch_size: B, records a batch, of the trials as of the training.
        rounds: a round is an epoch (section 5.1.4); round 1 is before the first.
        trials: private batches that are attacked.
        lr: learning rate of SGD, or of an optimizer that names none.
        optimizer: moves the model, as ``leakgauge.training.catalog.parse_optimizer`` reads it. An
            observer sees the gradient of each batch at the current parameters in any case.
        batches: ``"reuse"``: a trial's batch is the same in every round, as in training over
            epochs; ``"fresh"``: each round draws a new batch with the same secret.
        prior: ``"uniform"``, or ``"empirical"``: the secret's shares among the private records.
        seed: all randomness follows from it.
        max_bytes: bound on the gradients held at once.
        allow_loop: take a model that ``torch.func`` cannot vectorise through a plain loop, which
            is slower and exact; else it is refused.
        ratio_bins: m of proportion inference, the ranges of the share.
        ratio_of: the value whose share it is; None: the second of two, the most frequent of more.
        ratio_counts: ``"floor"`` or ``"within"``, as ``games.mixing.Ratio`` counts.
        candidates: m of user inference, the users that a batch may be of.
        stack: judge held-out shadow batches with every adversary, so that the rounds can be
            weighted; those that calibrate themselves on such batches are weighted anyway.
    """

    secret: str
    batch_size: int = 16
    rounds: int = 10
    trials: int = 5000
    lr: float = 0.01
    batches: str = REUSE
    prior: str = UNIFORM
    seed: int = 0
    max_bytes: int = MAX_BYTES
    allow_loop: bool = False
    ratio_bins: int = 6
    ratio_of: str | None = None
    ratio_counts: str = FLOOR
    candidates: int = 5
    stack: bool = False
    optimizer: str = SGD

    def __post_init__(self) -> None:
        require_count(self.batch_size, "batch size")
        require_count(self.rounds, "number of rounds")
        require_count(self.trials, "number of trials")
        require_positive(self.lr, "learning rate")
        require_count(self.max_bytes, "memory bound in bytes")
        require_choice(self.batches, "batches", (REUSE, FRESH))
        require_choice(self.prior, "prior", (UNIFORM, EMPIRICAL))
        require_choice(self.ratio_counts, "--ratio-counts", COUNT_RULES)
        for name, count in (("--ratio-bins", self.ratio_bins), ("--candidates", self.candidates)):
            require_count(count, name)
            require(count >= 2, f"{name} is {count}; expected 2 or more")
