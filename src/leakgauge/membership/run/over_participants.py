"""The mean of figures over the participants of a federation."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from leakgauge.results.measurements import Histogram, Measurement
from leakgauge.results.statistics import mean_of

RATES = np.concatenate([[0.0], np.geomspace(1e-3, 1, 120)])
"""False positive rates of a mean ROC."""

Curve = Sequence[tuple[float, float]]


def over_participants(each: Sequence[Sequence[Measurement]]) -> list[Measurement]:
    """Return the mean of each figure over participants.

    Interval ends are means, too: participants share the non-members, so their errors are not
    independent.

    Args:
        each: measurements of each participant; a figure that some lack is left out.
    """
    if len(each) == 1:
        return list(each[0])
    found = [{_key(one): one for one in several} for several in each]
    return [
        _mean([one[key] for one in found]) for key in found[0] if all(key in one for one in found)
    ]


def _key(one: Measurement) -> tuple[str, str, str, str, int | str]:
    return one.metric, one.defense, one.knowledge, one.adversary, one.round


def _mean(each: Sequence[Measurement]) -> Measurement:
    first, estimates = each[0], [one.estimate for one in each]
    held = [one.held_out for one in each if one.held_out is not None]
    singles = ", ".join(f"{one.value:.3f}" for one in estimates)
    return replace(
        first,
        estimate=mean_of(estimates),
        chance=float(np.mean([one.chance for one in each])),
        held_out=float(np.mean(held)) if held else None,
        curve=_mean_curve([one.curve for one in each if one.curve]),
        histogram=None if first.histogram is None else _pooled([one.histogram for one in each]),
        details={**first.details, "each participant": singles},
        seconds=sum(one.seconds for one in each),
    )


def _mean_curve(curves: Sequence[Curve]) -> tuple[tuple[float, float], ...]:
    """Return the mean true positive rate for each false positive rate."""
    if not curves:
        return ()
    rates = [np.interp(RATES, *np.array(curve).T) for curve in curves]
    return tuple(zip(RATES.tolist(), np.mean(rates, axis=0).tolist(), strict=True))


def _pooled(each: Sequence[Histogram | None]) -> Histogram:
    """Return all counts over common bins, with a bin's scores at its middle."""
    known = [one for one in each if one is not None]
    edges = np.linspace(
        min(one.edges[0] for one in known), max(one.edges[-1] for one in known), len(known[0].edges)
    )
    counts = []
    for kind in ("null", "alternative"):
        total = np.zeros(len(edges) - 1)
        for one in known:
            middles = (np.array(one.edges[1:]) + np.array(one.edges[:-1])) / 2
            total += np.histogram(middles, edges, weights=getattr(one, kind))[0]
        counts.append(tuple(round(one) for one in total))
    return Histogram(tuple(edges.tolist()), *counts)
