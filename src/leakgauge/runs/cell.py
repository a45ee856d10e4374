"""One experiment of a grid, and a figure that a paper states of one."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from leakgauge.core.checks import require
from leakgauge.core.strict import Finite, Real, Truth, Whole
from leakgauge.guarantee import run as guarantee
from leakgauge.guarantee.run import GuaranteeCell
from leakgauge.inference.run import REUSE, UNIFORM, Settings
from leakgauge.inference.run.plan import Plan
from leakgauge.inversion.run import spec as inversion
from leakgauge.inversion.run.spec import InversionCell


@dataclass(frozen=True)
class Cell:
    """One experiment: one value of each setting.

    Attributes:
        data: a dataset's name, or the path of a table or images.
        label: the column that the model predicts; None where the dataset has a usual one.
        secret: the column that nobody should learn; as ``label``.
        group: the column that names the person of each record; as ``label``.
        drop: columns to leave out.
        bins: for a label or secret of numbers, into how many ranges to cut it.
        drop_missing: whether rows without label, secret or group are left out.
        ask: the game.
        adversary: who plays it; None for the paper's.
        defense: ``"none"``, ``"prune:rate=0.99"``, ...
        batch_size: records a batch.
        shadow: shadow records, at most.
        rounds: of training.
        trials: private batches that are attacked.
        lr: learning rate of the training.
        batches: the same in every round, or fresh ones.
        prior: of the secret.
        ratio_bins: of proportion inference, the ranges of the share.
        candidates: of user inference, the persons that a batch may be of.
        stack: also weigh the rounds by what shadow data teach.
        hidden: widths of the hidden layers of the network for tables.
        allow_loop: take a model that cannot be vectorised.
        device: where torch computes.
        seed: all randomness follows from it.
    """

    data: str
    label: str | None = None
    secret: str | None = None
    group: str | None = None
    drop: tuple[str, ...] = ()
    bins: Mapping[str, Whole] = field(default_factory=dict)
    drop_missing: Truth = False
    ask: str = "property"
    adversary: str | None = None
    defense: str = "none"
    batch_size: Whole = 16
    shadow: Whole = 1000
    rounds: Whole = 10
    trials: Whole = 5000
    lr: Real = 0.01
    batches: str = REUSE
    prior: str = UNIFORM
    ratio_bins: Whole = 6
    candidates: Whole = 2
    stack: Truth = False
    hidden: tuple[Whole, ...] = (100,)
    allow_loop: Truth = False
    device: str = "cpu"
    seed: Whole = 0

    @property
    def plan(self) -> Plan:
        """The same as an audit is told it.

        Raises:
            InputError: a name or a value is not one that an audit knows.
        """
        shared = {one.name for one in fields(Settings)} & {one.name for one in fields(self)}
        settings = Settings(**{**{name: getattr(self, name) for name in shared}, "secret": ""})
        plan = Plan(
            asks=(self.ask,),
            adversaries=() if self.adversary is None else (self.adversary,),
            settings=settings,
            shadow=self.shadow,
            hidden=self.hidden,
            device=self.device,
            defenses=(self.defense,),
            beside_none=False,
        )
        require(len(plan.parsed_defenses) == 1, f"defense is {self.defense!r}; expected one")
        return plan


AnyCell = Cell | GuaranteeCell | InversionCell

KINDS: Mapping[object, type[AnyCell]] = {
    guarantee.QUESTION: GuaranteeCell,
    inversion.QUESTION: InversionCell,
}
"""What is asked of cells that have settings of their own; all other questions are for ``Cell``."""


def kind_of(ask: object) -> type[AnyCell]:
    """Which kind of cell asks so.

    >>> kind_of("property").__name__, kind_of("guarantee").__name__
    ('Cell', 'GuaranteeCell')
    """
    return KINDS.get(ask, Cell) if isinstance(ask, str) else Cell


def named(cell: AnyCell) -> AnyCell:
    """With its adversary named.

    Raises:
        InputError: what would fail hours later.
    """
    if isinstance(cell, Cell):
        return replace(cell, adversary=cell.plan.adversary_names[0])
    cell.check()
    return cell


def differing(one: AnyCell, other: AnyCell) -> list[str]:
    """The settings in which two cells differ, but for the seed."""
    mine, theirs = asdict(one), asdict(other)
    return [name for name in mine if name != "seed" and mine[name] != theirs.get(name)]


def plain(cell: AnyCell) -> dict[str, Any]:
    """The settings as JSON has them."""
    settings: dict[str, Any] = json.loads(json.dumps(asdict(cell)))
    return settings


@dataclass(frozen=True)
class PaperFigure:
    """A figure that the paper states.

    Attributes:
        where: settings of the cells that it is about.
        value: what the paper says.
        metric: of which metric.
        round: of all rounds together, or of one.
        knowledge: what the adversary knew of the defense.
        note: anything that a reader should know.
    """

    where: Mapping[str, Any]
    value: Finite
    metric: Literal[
        "auroc",
        "tpr_at_1_fpr",
        "success",
        "advantage",
        "epsilon",
        "epsilon_gaussian",
        "epsilon_in_sample",
        "per_attribute_ratio",
        "distance_over_clip",
        "psnr",
        "ssim",
        "lpips",
        "columns",
        "label_accuracy",
        "matching_greedy",
        "matching_optimal",
        "matching_gradients",
    ] = "auroc"
    round: Whole | Literal["accumulated", "stacked"] = "accumulated"
    knowledge: Literal["static", "adaptive"] = "static"
    note: str = ""

    def about(self, cell: AnyCell) -> bool:
        """Whether it is a figure of this cell, whatever its seed."""
        settings = plain(cell)
        return all(settings.get(name) == value for name, value in self.where.items())
