"""Measurements of the results, by round and client."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from leakgauge.federation.metrics import (
    LOSS,
    MATCHED,
    METRICS,
    PROPERTY_AUROC,
    PROPERTY_RIGHT,
    PSNR,
    STARTS,
    of_client,
)
from leakgauge.federation.run.members import MembershipResult
from leakgauge.federation.run.over_rounds import OverRounds
from leakgauge.federation.run.preparing import FederationPrepared
from leakgauge.federation.run.properties import PropertyResult, over_rounds
from leakgauge.federation.run.rebuilding import RebuiltUpdate
from leakgauge.federation.run.searching import method
from leakgauge.federation.spec import MEMBERSHIP, NAME, PROPERTY, RECONSTRUCTION
from leakgauge.integrations.kept_reading import KeptUpdate
from leakgauge.inversion.words import ALIGNED, ASSUMED
from leakgauge.results.measurements import ACCUMULATED, CellContext, Estimate, Measurement
from leakgauge.results.roc import auroc
from leakgauge.results.scores import ADVANTAGE, AUROC
from leakgauge.results.statistics import mean_of, mean_over_starts, share_estimate


@dataclass
class UpdateResults:
    """The results for each kept update, and on membership for each client over all rounds."""

    rebuilt: dict[KeptUpdate, RebuiltUpdate] = field(default_factory=dict)
    members: dict[KeptUpdate, MembershipResult] = field(default_factory=dict)
    properties: dict[KeptUpdate, PropertyResult] = field(default_factory=dict)
    over_rounds: dict[str, OverRounds] = field(default_factory=dict)


EACH_ATTACK = "each attack"
"""Entry of ``Measurement.details``: the AUROC of each attack over all rounds."""

Figure = tuple[Estimate, float]
"""A figure and its value without leakage."""


def measurements_of(prepared: FederationPrepared, found: UpdateResults) -> list[Measurement]:
    """Return the figures of each update, and their means over all updates."""
    searched = [text for each in found.rebuilt.values() for text in each.assumed]
    make = partial(_measurement, prepared, searched=searched)
    made: list[Measurement] = []
    for ask, figures in (
        (RECONSTRUCTION, {one: _of_rebuilt(each) for one, each in found.rebuilt.items()}),
        (MEMBERSHIP, {one: _of_members(each, prepared) for one, each in found.members.items()}),
        (PROPERTY, {one: _of_property(each, prepared) for one, each in found.properties.items()}),
    ):
        for metric in dict.fromkeys(name for each in figures.values() for name in each):
            known = {one: each[metric] for one, each in figures.items() if metric in each}
            made.append(_mean(make(ask, metric, ACCUMULATED, *_of_all(known.values())), found))
            for one, figure in known.items():
                shown = make(ask, of_client(metric, one.client), one.number, *figure)
                made.append(_aligned(shown, found.rebuilt[one]) if metric == MATCHED else shown)
    made += _over_rounds(prepared, found, make)
    made += [make(PROPERTY, PROPERTY_RIGHT, ACCUMULATED, *one) for one in _right(prepared, found)]
    return made


def _of_all(figures: Collection[Figure]) -> Figure:
    estimates, chances = zip(*figures, strict=True)
    return mean_of(estimates), float(np.mean(chances))


def _aligned(one: Measurement, rebuilt: RebuiltUpdate) -> Measurement:
    """Return the match of an update with that of its direction alone."""
    if rebuilt.aligned is None:
        return one
    return replace(one, details={**one.details, ALIGNED: f"{rebuilt.aligned:.4f}"})


def _mean(one: Measurement, found: UpdateResults) -> Measurement:
    """Return a mean over updates; an AUROC of membership also with that of validation records."""
    if one.metric != AUROC or one.game != MEMBERSHIP:
        return one
    each = [float(auroc(one.known, one.validation)) for one in found.members.values()]
    return replace(one, held_out=float(np.mean(each)))


def _over_rounds(
    prepared: FederationPrepared, found: UpdateResults, make: Callable[..., Measurement]
) -> Iterator[Measurement]:
    """Yield the figures of each client over all rounds, and their means."""
    if not found.over_rounds:
        return
    each = {
        client: one.figures(seed=prepared.spec.seed) for client, one in found.over_rounds.items()
    }
    alone = [one.aurocs() for one in found.over_rounds.values()]
    names = dict.fromkeys(name for one in alone for name in one)
    means = {name: np.mean([one[name] for one in alone if name in one]) for name in names}
    details = {EACH_ATTACK: ", ".join(f"{name} {value:.3f}" for name, value in means.items())}
    held_out = float(np.mean([one.held_out for one in found.over_rounds.values()]))
    for metric in dict.fromkeys(name for one in each.values() for name in one):
        known = {client: one[metric] for client, one in each.items() if metric in one}
        mean = make(MEMBERSHIP, metric, ACCUMULATED, *_of_all(known.values()))
        yield replace(mean, details=details, held_out=held_out)
        for client, figure in known.items():
            yield make(MEMBERSHIP, of_client(metric, client), ACCUMULATED, *figure)


def _of_rebuilt(rebuilt: RebuiltUpdate) -> Mapping[str, Figure]:
    found: dict[str, Figure] = {LOSS: (_point(rebuilt.loss), 0.0)}
    if rebuilt.matched is not None:
        found[MATCHED] = _point(rebuilt.matched), 0.0
    if not len(rebuilt.psnr):
        return found
    metric = METRICS[PSNR]
    near = mean_over_starts(rebuilt.psnr, rebuilt.starts, unit=metric.unit, bounds=metric.bounds)
    return {PSNR: (near, rebuilt.guess), **found}


def _point(value: float) -> Estimate:
    return Estimate(value, value, value, 1)


def _of_members(result: MembershipResult, prepared: FederationPrepared) -> Mapping[str, Figure]:
    figures = result.estimates(seed=prepared.spec.seed)
    return {AUROC: (figures[AUROC], 0.5), ADVANTAGE: (figures[ADVANTAGE], 0.0)}


def _of_property(named: PropertyResult, prepared: FederationPrepared) -> Mapping[str, Figure]:
    return {PROPERTY_AUROC: (named.estimates(seed=prepared.spec.seed)[AUROC], 0.5)}


def _right(prepared: FederationPrepared, found: UpdateResults) -> Iterator[Figure]:
    """Yield the share of clients with a correctly inferred majority value over all rounds."""
    if not found.properties or not prepared.held:
        return
    codes = prepared.data.secrets[prepared.secret]
    hits = []
    for client, rows in prepared.held.items():
        each = [named for one, named in found.properties.items() if one.client == client]
        if each:
            true = int(np.bincount(codes[rows].cpu().numpy()).argmax())
            hits.append(float(int(over_rounds(each).argmax()) == true))
    if hits:
        values = len(next(iter(found.properties.values())).log_posterior)
        yield share_estimate(np.array(hits)), 1 / values


def _measurement(
    prepared: FederationPrepared,
    ask: str,
    metric: str,
    when: int | str,
    estimate: Estimate,
    chance: float,
    *,
    searched: Sequence[str],
) -> Measurement:
    spec = prepared.spec
    who = {RECONSTRUCTION: spec.method, MEMBERSHIP: "weighted sum", PROPERTY: "simulated clients"}
    context = CellContext(
        question=NAME,
        game=ask,
        dataset=prepared.source.name,
        secret=prepared.secret if ask == PROPERTY else "",
        adversary=who[ask],
        round=when,
        seed=spec.seed,
    )
    said = dict.fromkeys(text for each in prepared.assumed.values() for text in each)
    said |= dict.fromkeys(searched if ask == RECONSTRUCTION else ())
    details = {ASSUMED: "; ".join(said)} if said else {}
    if metric == PSNR and method(spec, prepared.data.x).traits.searches:
        details |= {STARTS: str(spec.restarts)}
    return context.measurement(metric, estimate, chance=chance, details=details)
