"""The settings of clients, and of what an attacker knows of their training; imports no torch."""

from dataclasses import dataclass
from typing import Annotated

from leakgauge.core.strict import Real, Truth, Whole
from leakgauge.inversion.words import ASSUMED_LR, STATISTICS, UNKNOWNS
from leakgauge.runs.setting import ATTACK, TRAINING, Setting
from leakgauge.runs.spec import Spec
from leakgauge.training.catalog import HELP as OPTIMIZERS_HELP
from leakgauge.training.catalog import NOTATION as OPTIMIZERS_NOTATION
from leakgauge.training.catalog import SGD


@dataclass(frozen=True, kw_only=True)
class ClientSpec(Spec):
    """Settings of how clients make their updates, and of what is known of it."""

    batch_size: Annotated[
        Whole, Setting("records in a client's training step", least=1, panel=TRAINING)
    ] = 1
    local_steps: Annotated[
        Whole, Setting("a client's steps before it sends", least=1, panel=TRAINING)
    ] = 1
    local_lr: Annotated[
        Real,
        Setting("learning rate of a client's local steps", above=0, panel=TRAINING),
    ] = 1e-4
    local_optimizer: Annotated[
        str,
        Setting(
            f"makes a client's local steps: {OPTIMIZERS_HELP}",
            panel=TRAINING,
            notation=OPTIMIZERS_NOTATION,
        ),
    ] = SGD
    local_epochs: Annotated[
        Whole,
        Setting(
            "passes of a client over the same records before it sends", least=1, panel=TRAINING
        ),
    ] = 1
    reshuffle: Annotated[
        Truth,
        Setting(
            "with --local-epochs: shuffle the records in each later pass, unknown to the attacker",
            panel=TRAINING,
        ),
    ] = False
    local_rates: Annotated[
        tuple[Real, ...],
        Setting(
            "learning rate of each local step, in place of --local-lr: a schedule",
            above=0,
            panel=TRAINING,
        ),
    ] = ()
    train_mode: Annotated[
        Truth,
        Setting(
            "clients train in training mode: BatchNorm uses the statistics of each batch, and "
            "dropout draws",
            panel=TRAINING,
        ),
    ] = False
    clients: Annotated[
        Whole,
        Setting(
            "clients behind one sum, which is all that the server sees (secure aggregation); all "
            "their records are attacked",
            least=1,
            panel=TRAINING,
        ),
    ] = 1
    unknown: Annotated[
        tuple[str, ...],
        Setting(
            "what the attacker does not know of the local steps: the rate (it assumes "
            f"--assumed-lr) or the optimizer (it assumes {SGD})",
            choices=UNKNOWNS,
            panel=ATTACK,
        ),
    ] = ()
    assumed_lr: Annotated[
        Real | None,
        Setting(
            "with --unknown rate or --ladder: the rate that the attacker assumes; by default "
            f"{ASSUMED_LR:g}, torch's own",
            above=0,
            panel=ATTACK,
        ),
    ] = None
    statistics: Annotated[
        str | None,
        Setting(
            "with --train-mode: how the attacker knows the statistics of the batches in BatchNorm "
            "layers, to match them: known (granted), inferred (from the running statistics that "
            "were sent), proxy (from public records); by default it does not",
            choices=STATISTICS,
            panel=ATTACK,
        ),
    ] = None

    @property
    def own_records(self) -> int:
        """Records of one client."""
        return self.batch_size * self.local_steps

    @property
    def records_per_update(self) -> int:
        """Records behind one update, or one sum of updates."""
        return self.own_records * self.clients
