"""The settings of clients, and of what an attacker knows of their training; imports no torch."""

from dataclasses import dataclass

from leakgauge.core.strict import Real, Truth, Whole
from leakgauge.inversion.words import ASSUMED_LR, STATISTICS, UNKNOWNS
from leakgauge.runs.fields import optimizer_field
from leakgauge.runs.setting import ATTACK, TRAINING, setting
from leakgauge.runs.spec import Spec
from leakgauge.training.catalog import SGD


@dataclass(frozen=True, kw_only=True)
class ClientSpec(Spec):
    """Settings of how clients make their updates, and of what is known of it."""

    batch_size: Whole = setting(1, "records in a client's training step", TRAINING, least=1)
    local_steps: Whole = setting(1, "a client's steps before it sends", TRAINING, least=1)
    local_lr: Real = setting(1e-4, "learning rate of a client's local steps", TRAINING, above=0)
    local_optimizer: str = optimizer_field(SGD, "makes a client's local steps")
    local_epochs: Whole = setting(
        1, "passes of a client over the same records before it sends", TRAINING, least=1
    )
    reshuffle: Truth = setting(
        False,
        "with --local-epochs: shuffle the records in each later pass, unknown to the attacker",
        TRAINING,
    )
    local_rates: tuple[Real, ...] = setting(
        (),
        "learning rate of each local step, in place of --local-lr: a schedule",
        TRAINING,
        above=0,
    )
    train_mode: Truth = setting(
        False,
        "clients train in training mode: BatchNorm uses the statistics of each batch, and "
        "dropout draws",
        TRAINING,
    )
    clients: Whole = setting(
        1,
        "clients behind one sum, which is all that the server sees (secure aggregation); all "
        "their records are attacked",
        TRAINING,
        least=1,
    )
    unknown: tuple[str, ...] = setting(
        (),
        "what the attacker does not know of the local steps: the rate (it assumes "
        f"--assumed-lr) or the optimizer (it assumes {SGD})",
        ATTACK,
        choices=UNKNOWNS,
    )
    assumed_lr: Real | None = setting(
        None,
        "with --unknown rate or --ladder: the rate that the attacker assumes; by default "
        f"{ASSUMED_LR:g}, torch's own",
        ATTACK,
        above=0,
    )
    statistics: str | None = setting(
        None,
        "with --train-mode: how the attacker knows the statistics of the batches in BatchNorm "
        "layers, to match them: known (granted), inferred (from the running statistics that "
        "were sent), proxy (from public records); by default it does not",
        ATTACK,
        choices=STATISTICS,
    )

    @property
    def own_records(self) -> int:
        """Records of one client."""
        return self.batch_size * self.local_steps

    @property
    def records_per_update(self) -> int:
        """Records behind one update, or one sum of updates."""
        return self.own_records * self.clients
