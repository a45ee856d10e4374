"""One audit of a guarantee: its settings, how it is played, and the records that it leaves."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast, get_args

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from leakgauge import guarantee as room
from leakgauge.core.checks import nearest, require, require_choice
from leakgauge.core.rng import stream, torch_stream
from leakgauge.core.strict import Real, Truth, Whole
from leakgauge.core.types import Dataset, Task
from leakgauge.data import Roles, Source, Table, encode, make_table
from leakgauge.data.roles import resolve_roles
from leakgauge.guarantee import (
    DPSGD,
    Craft,
    LikelihoodRatio,
    Mechanism,
    Norm,
    OpacusMechanism,
    Pair,
    Result,
    metrics,
)
from leakgauge.guarantee.canary import Domain
from leakgauge.guarantee.distance import Distance
from leakgauge.inference.run.judging import versions
from leakgauge.models import mlp
from leakgauge.results.measurements import ACCUMULATED, Estimate, Histogram, Measurement

QUESTION = "guarantee"
RANDOM, CRAFTED = "random", "crafted"
CANARIES = (RANDOM, *(f"{CRAFTED}-{domain}" for domain in get_args(Domain)))
STATISTICS = {one.name: one for one in (LikelihoodRatio(), Norm())}
MECHANISMS: Mapping[str, Callable[[DPSGD], Mechanism]] = {
    "dpsgd": lambda claimed: claimed,
    "opacus": lambda claimed: OpacusMechanism(claimed.clip, claimed.multiplier(1)),
}
OBJECTIVES: tuple[Distance, ...] = ("cosine", "clipped")
BINS = 60


@dataclass(frozen=True)
class GuaranteeCell:
    """One audit of DP-SGD on a single record; one value of each setting.

    Attributes:
        data: a table's name or path.
        attribute: the column whose two values are told apart.
        clip: C of DP-SGD.
        noise: sigma of DP-SGD.
        ask: always ``"guarantee"``.
        label: the column that the model predicts; None where the dataset has a usual one.
        canary: ``"random"``, or how the record is crafted: ``"crafted-free"``, ...
        statistic: ``"norm"`` or ``"likelihood-ratio"``.
        mechanism: what is audited.
        trials: releases that are judged.
        delta: of every epsilon.
        hidden: widths of the hidden layers.
        group: the column that names the person of each record; no feature.
        drop: columns to leave out.
        bins: for a label of numbers, into how many ranges to cut it.
        drop_missing: whether rows without label are left out.
        seed: all randomness follows from it.
    """

    data: str
    attribute: str
    clip: Real
    noise: Real
    ask: str = QUESTION
    label: str | None = None
    canary: str = f"{CRAFTED}-{Craft.domain}"
    statistic: str = LikelihoodRatio.name
    mechanism: str = "dpsgd"
    trials: Whole = 5000
    delta: Real = 1e-5
    hidden: tuple[Whole, ...] = (100,)
    group: str | None = None
    drop: tuple[str, ...] = ()
    bins: Mapping[str, Whole] = field(default_factory=dict)
    drop_missing: Truth = False
    device: str = "cpu"
    seed: Whole = 0

    def check(self) -> None:
        """Refuse what can be refused before any data are read."""
        require_choice(self.canary, "--canary", CANARIES)
        require_choice(self.statistic, "--statistic", STATISTICS)
        require_choice(self.mechanism, "--mechanism", MECHANISMS)
        for width in self.hidden:
            require(width > 0, f"--hidden is {width}; expected a whole number above 0")
        require(0 < self.delta < 1, f"--delta is {self.delta:g}; expected a number between 0 and 1")
        MECHANISMS[self.mechanism](self.claimed)
        room.largest_showable(self.trials, self.delta)

    @property
    def claimed(self) -> DPSGD:
        """What the mechanism promises."""
        return DPSGD(self.clip, self.noise)

    @property
    def domain(self) -> Domain | None:
        """Where a crafted record may lie."""
        return None if self.canary == RANDOM else cast(Domain, self.canary.split("-")[1])

    def settled(self, source: Source) -> "GuaranteeCell":
        """With the roles that are usual for the data where the cell leaves them open."""
        roles = resolve_roles(
            source.roles,
            label=self.label,
            group=self.group,
            secret_needed=False,
            columns=source.frame.columns,
        )
        kept = [name for name in roles.drop if name != self.attribute]
        cut = {name: ranges for name, ranges in roles.bins.items() if name == roles.label}
        return replace(
            self,
            label=roles.label,
            group=roles.group,
            drop=tuple(dict.fromkeys([*kept, *self.drop])),
            bins=cut | dict(self.bins),
        )


def checked_table(source: Source, cell: GuaranteeCell) -> Table:
    """The table, with the attribute among its features.

    Args:
        source: the data.
        cell: settled.

    Raises:
        InputError: the data are images, or the attribute is no feature.
    """
    name = cell.attribute
    require(source.pixels is None, f"{source.name!r} holds images, no attributes; bring a table")
    roles = Roles(str(cell.label), (), cell.group, cell.drop, cell.bins)
    for role, names in (("label", [roles.label]), ("group", [roles.group]), ("drop", roles.drop)):
        require(name not in names, f"--attribute {name!r} is no feature, as --{role} names it, too")
    table = make_table(source.frame, roles, drop_missing=cell.drop_missing)
    # Why a column is no feature is told in the notes alone.
    why = "".join(f"; {note}" for note in table.notes if note.startswith(f"column {name!r} "))
    hint = why or nearest(name, map(str, table.features))
    require(name in table.features, f"--attribute {name!r} is none of the features{hint}")
    return table


def audited(
    table: Table, cell: GuaranteeCell, *, mechanism: Mechanism | None = None
) -> tuple[Pair, Result]:
    """The record, and what an auditor learns of its attribute from the initial model.

    Args:
        table: from ``checked_table``.
        cell: settled.
        mechanism: takes the place of the cell's; judged by what the cell's promises.
    """
    data, seed = encode(table, fit_on=torch.arange(len(table))).to(cell.device), cell.seed
    model = mlp(
        data.x.shape[1],
        len(table.classes),
        cell.hidden,
        generator=torch_stream(seed, "model"),
    ).to(cell.device)
    task = Task(model, cross_entropy)
    pair = _random(data, cell) if cell.domain is None else _crafted(task, data, cell)
    return pair, room.audit_pair(
        task,
        None,
        pair,
        mechanism or MECHANISMS[cell.mechanism](cell.claimed),
        claimed=cell.claimed,
        statistic=STATISTICS[cell.statistic],
        trials=cell.trials,
        delta=cell.delta,
        seed=seed,
    )


def _random(data: Dataset, cell: GuaranteeCell) -> Pair:
    return room.choose_pairs(data, cell.attribute, 1, rng=stream(cell.seed, "pairs"))[0]


def _crafted(task: Task, data: Dataset, cell: GuaranteeCell) -> Pair:
    """The worse of what two objectives find: which gets further depends on clip and domain."""
    attribute = room.attribute_of(data, cell.attribute, rng=stream(cell.seed, "values"))
    found = [
        room.craft(
            task,
            None,
            data,
            attribute,
            Craft(cast(Domain, cell.domain), distance, min(Craft.restarts, len(data))),
            clip=cell.clip,
            rng=stream(cell.seed, "craft"),
        )
        for distance in OBJECTIVES
    ]
    return max(found, key=lambda canary: canary.distance).pair


def records_of(cell: GuaranteeCell, data: str, pair: Pair, result: Result) -> list[Measurement]:
    """What was found, one record a figure.

    ``epsilon``, ``epsilon_gaussian`` and ``epsilon_in_sample`` are the three estimates. Where not
    one trial went wrong an interval has no upper end; the promise for the worst record stands
    there. ``per_attribute_ratio`` is the paper's yardstick (its classic epsilon over N) divided by
    its estimate; it is left out where that may be 0.
    """
    promised = _theory(result)
    ends = {
        metrics.EPSILON: result.estimate,
        metrics.GAUSSIAN: result.gaussian,
        metrics.IN_SAMPLE: result.in_sample,
    }
    figures = {name: _ended(one, promised["mechanism_exact"]) for name, one in ends.items()}
    apart = result.distance_over_clip
    figures[metrics.DISTANCE_OVER_CLIP] = Estimate(apart, apart, apart, 1)
    shown, yardstick = figures[metrics.IN_SAMPLE], result.theory.per_attribute_classic
    if shown.low > 0:
        middle, low, high = (yardstick / end for end in (shown.value, shown.high, shown.low))
        figures[metrics.PER_ATTRIBUTE_RATIO] = Estimate(middle, low, high, shown.n)
    return [
        Measurement(
            question=QUESTION,
            game=cell.attribute,
            dataset=data,
            label=str(cell.label),
            secret=cell.attribute,
            defense=f"dpsgd:clip={cell.clip:g},noise={cell.noise:g}",
            knowledge="adaptive",
            adversary=cell.statistic,
            metric=name,
            round=ACCUMULATED,
            seed=cell.seed,
            estimate=estimate,
            chance=0.0,
            details={"first": pair.attribute.values[0], "second": pair.attribute.values[1]},
            theory=promised if name == metrics.EPSILON else {},
            histogram=histogram(result) if name == metrics.EPSILON else None,
            versions=versions(),
        )
        for name, estimate in figures.items()
    ]


def histogram(result: Result) -> Histogram:
    """Of the judged scores under both hypotheses, over common bins of equal width."""
    both = np.concatenate([result.null, result.alternative])
    edges = np.histogram_bin_edges(both, BINS)
    counts = (np.histogram(one, edges)[0] for one in (result.null, result.alternative))
    null, alternative = (tuple(int(one) for one in found) for found in counts)
    return Histogram(tuple(float(f"{edge:.6g}") for edge in edges), null, alternative)


def _ended(estimate: Estimate, promised: float) -> Estimate:
    if math.isfinite(estimate.high):
        return estimate
    return replace(estimate, high=max(estimate.value, promised))


def _theory(result: Result) -> dict[str, float]:
    half = result.trials // 2
    never_wrong = room.epsilon_gaussian_dp(room.Errors(0, 0, half, half), result.delta)
    found: dict[str, Any] = {
        "largest_showable": result.largest_showable.value,
        "largest_showable_low": result.largest_showable.low,
        "largest_showable_gaussian_low": never_wrong.low,
        **{name: getattr(one, "value", one) for name, one in vars(result.theory).items()},
    }
    return found
