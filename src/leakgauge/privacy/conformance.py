"""Whether a training does what its accountant counts: noise, clipping and sampling, by layer.

A lower bound of epsilon needs large violations. But the auditor knows the sum that noise is added
to, so that each released coordinate has a known distribution if the mechanism is what it says. The
checks compare both. A correct training fails one of them with a probability of at most the
significance: p-values are exact, or too large, and corrected together (Holm 1979).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy
from numpy.typing import NDArray

from leakgauge.privacy.whole_scores import Shift
from leakgauge.results.statistics import Floats

NOISE = "noise"
REPEATED = "new noise in each step"
CLIP = "clipping"
MODEL = "noise of the model"
NORM = "norm of an update"
SINGLE = "single number"
SHARE = "share of one client"
BATCH = "batch size"
EQUAL = "equal batches"
COUNTED = "steps counted"
CLAIM = "claim"

SENTENCES = {
    REPEATED: "the noise in {where} is not new in each step (sums over steps spread {seen} times "
    "as far as they should)",
    NOISE: "the noise in {where} has {seen} times the stated size",
    MODEL: "the released models have {seen} times the stated noise",
    CLIP: "a clipped record counts {seen} clipping norms in {where}; expected 1",
    NORM: "updates have up to {seen} clipping norms after clipping; expected at most 1",
    SINGLE: "{where} is a single number, which is not clipped",
    SHARE: "one client has {seen} times its share of the mean",
    BATCH: "batches have {seen} records on average; the stated sampling gives {expected}",
    EQUAL: "a share of {seen} of the batches has the same size; Poisson sampling gives {expected} "
    "at most",
    COUNTED: "the accountant counted {seen} of {expected} steps",
    CLAIM: "the steps that the accountant counted have an epsilon of {seen} or more; the claim is "
    "{expected}",
}
"""What a failed check says, the most telling first."""

SHOWN = 20
"""Rows of a printed table."""

FAILS_BY_CHANCE = 0.1
"""Share of an audit's significance at which a correct training fails a check."""

_ROUNDING = 1e-3
"""Noise below this share of the stated size is rounding, which tells nothing about clipping."""


@dataclass(frozen=True)
class Check:
    """One figure of a training, and what it is if the training does what it says.

    Attributes:
        what: ``"noise"``: size of the noise, in stated ones. ``"new noise in each step"``: spread
            of the sums over steps, in that of independent noise. ``"clipping"``: what one clipped
            record adds, in clipping norms. ``"noise of the model"``: size of the noise in all
            layers together, in stated ones. ``"norm of an update"``: largest norm of a client's
            update after clipping, in clipping norms. ``"single number"``: the same, of an array
            that is one number. ``"share of one client"``: its largest weight in the mean, times the
            stated number of clients. ``"batch size"``: records on average. ``"equal batches"``:
            share of the most frequent size. ``"steps counted"``: by the accountant. ``"claim"``: an
            epsilon.
        where: layer, or empty for the whole training.
        expected: the figure of a correct training.
        seen: the figure of this training.
        p_value: probability of a figure as far off in a correct training, before correction.
        corrected: the same, corrected for the number of checks.
    """

    what: str
    where: str
    expected: float
    seen: float
    p_value: float
    corrected: float = 1.0


@dataclass(frozen=True)
class Conformance:
    """Whether a training does what it says.

    Attributes:
        checks: by layer, then those of the whole training.
        significance: probability at most with which a correct training fails any check.
        unseen: what could not be checked.
    """

    checks: tuple[Check, ...]
    significance: float
    unseen: tuple[str, ...] = ()

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that fail."""
        return tuple(one for one in self.checks if one.corrected < self.significance)

    @property
    def sentence(self) -> str:
        """What fails, in one sentence."""
        missing = f" Not checked: {', '.join(self.unseen)}." if self.unseen else ""
        if not self.failed:
            return f"Training does what it says, as far as {len(self.checks)} checks see.{missing}"
        parts = [part for what in SENTENCES if (part := self._part(what))]
        return f"DOES NOT DO WHAT IT SAYS: {'; '.join(parts)}.{missing}"

    def _part(self, what: str) -> str:
        repeated = {one.where for one in self.failed if one.what == REPEATED}
        off = [one for one in self.failed if one.what == what]
        if what == NOISE:  # repeated noise also misses its size
            off = [one for one in off if one.where not in repeated]
        if not off:
            return ""
        names = [one.where for one in off]
        many = len(names) > 1 and len(names) == sum(one.what == what for one in self.checks)
        where = f"all {len(names)} layers" if many else _names(names)
        low, high = min(one.seen for one in off), max(one.seen for one in off)
        seen = (
            _figure(low) if _figure(low) == _figure(high) else f"{_figure(low)} to {_figure(high)}"
        )
        return SENTENCES[what].format(where=where, seen=seen, expected=_figure(off[0].expected))

    def __str__(self) -> str:
        """Return a table; of many rows those with the smallest p-values."""
        order = sorted(range(len(self.checks)), key=lambda k: self.checks[k].p_value)[:SHOWN]
        rows = [("check", "layer", "expected", "seen", "p", "corrected")]
        for one in (self.checks[k] for k in sorted(order)):
            p = (f"{one.p_value:.2g}", f"{one.corrected:.2g}")
            rows.append((one.what, one.where, _figure(one.expected), _figure(one.seen), *p))
        widths = [max(len(row[k]) for row in rows) for k in range(6)]
        rows.insert(1, tuple("-" * width for width in widths))  # type: ignore[arg-type]
        lines = [
            "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        left = len(self.checks) - len(order)
        return "\n".join([*lines, *([f"and {left} checks with larger p"] if left > 0 else [])])


def conformance_of(
    checks: Sequence[Check], significance: float, unseen: Sequence[str] = ()
) -> Conformance:
    """Return the checks, corrected for their number.

    Args:
        checks: with p-values.
        significance: probability at most with which a correct training fails any check.
        unseen: what could not be checked.

    References:
        Holm, A Simple Sequentially Rejective Multiple Test Procedure, 1979.

    >>> checks = [Check("noise", str(p), 1.0, 1.0, p) for p in (0.03, 0.01, 0.5)]
    >>> [round(one.corrected, 6) for one in conformance_of(checks, 0.01).checks]
    [0.06, 0.03, 0.5]
    """
    corrected, largest = list(checks), 0.0
    for rank, k in enumerate(sorted(range(len(checks)), key=lambda k: checks[k].p_value)):
        largest = min(1.0, max(largest, (len(checks) - rank) * checks[k].p_value))
        corrected[k] = replace(checks[k], corrected=largest)
    return Conformance(tuple(corrected), significance, tuple(unseen))


class ReleaseSums:
    """Sums over steps of what was released, from which the checks of layers follow.

    Args:
        size: number of coordinates that are read, c.
    """

    def __init__(self, size: int) -> None:
        self.steps, self.sum, self.squares = np.zeros((3, size))  # where no canary was drawn
        self.draws, self.drawn = np.zeros((2, size))

    def add(self, left: Floats, drawn: NDArray[np.int64], noise: float) -> None:
        """Add a step.

        Args:
            left: released minus the other records' sum ``[c]``, in clipping norms.
            drawn: how often the canary of each coordinate is in the step ``[c]``.
            noise: stated noise multiplier; a step without noise is left out.
        """
        if noise <= 0:
            return
        scaled, free = left / noise, drawn == 0
        self.steps += free
        self.sum += np.where(free, scaled, 0.0)
        self.squares += np.where(free, scaled**2, 0.0)
        self.draws += (drawn / noise) ** 2
        self.drawn += drawn / noise * scaled

    def shift(self) -> Shift | None:
        """Return what one draw of a record adds, over the noise of a step, in stated ones.

        It is 1 if training does what it says. None if no canary was drawn, or no noise was seen.
        """
        n, draws = float(self.steps.sum()), float(self.draws.sum())
        squares = float(self.squares.sum())
        if n < 1 or draws == 0 or squares == 0:
            return None
        return Shift(float(self.drawn.sum()) / draws / math.sqrt(squares / n), draws**-0.5, n)

    def checks(self, layers: NDArray[np.int64], names: Sequence[str]) -> list[Check]:
        """Return the checks of each layer, as far as it has coordinates and draws.

        Args:
            layers: layer of each coordinate ``[c]``.
            names: name of each layer.
        """
        found = []
        for k, name in enumerate(names):
            found += self._layer(layers == k, name)
        return found

    def _layer(self, here: NDArray[np.bool_], name: str) -> list[Check]:
        found = []
        steps, total, squares = (
            one[here & (self.steps > 0)] for one in (self.steps, self.sum, self.squares)
        )
        n, all_squares = float(steps.sum()), float(squares.sum())
        size = spread = 1.0  # of the noise, in stated ones: of a step, of sums over steps
        if n > 0:
            size = float(np.sqrt(all_squares / n))
            found.append(Check(NOISE, name, 1.0, size, _both(scipy.stats.chi2(n), all_squares)))
            between = float((total**2 / steps).sum())
            spread = float(np.sqrt(between / len(steps)))
            if n > len(steps) and size > _ROUNDING:
                # Where the noise of all steps is the same, nothing but rounding is within.
                within = max(all_squares - between, 1e-9 * all_squares) / (n - len(steps))
                p = _both(scipy.stats.f(len(steps), n - len(steps)), between / len(steps) / within)
                found.append(Check(REPEATED, name, 1.0, spread / size, p))
        draws = float(self.draws[here].sum())
        if draws > 0:
            seen = float(self.drawn[here].sum()) / draws
            # The noise as it is, not as stated, so that wrong noise is not taken for clipping.
            error = max(size, spread, 10 * _ROUNDING) / np.sqrt(draws)
            law = scipy.stats.t(n) if n > 0 else scipy.stats.norm()
            found.append(Check(CLIP, name, 1.0, seen, _both(law, (seen - 1) / error)))
        return found


def batch_checks(sizes: Sequence[int], records: int, rate: float) -> list[Check]:
    """Return the checks of the numbers of records in batches, for Poisson sampling.

    Args:
        sizes: number of records of each batch.
        records: number of records, each of which is in a batch with probability ``rate``.
        rate: in (0, 1].

    >>> [one.p_value < 1e-9 for one in batch_checks([20] * 30, 200, 0.1)]  # shuffled epochs
    [False, True]
    """
    steps, total = len(sizes), sum(sizes)
    sums = scipy.stats.binom(records * steps, rate)
    p_mean = min(1.0, 2 * min(float(sums.cdf(total)), float(sums.sf(total - 1))))
    most = int(np.bincount(sizes).max())
    reach = 12 * np.sqrt(records * rate) + 12  # sizes beyond it have no probability
    low, high = (int(records * rate + sign * reach) for sign in (-1, 1))
    each = scipy.stats.binom.pmf(np.arange(max(0, low), min(records, high) + 1), records, rate)
    p_equal = min(1.0, float(scipy.stats.binom.sf(most - 1, steps, each).sum()))
    return [
        Check(BATCH, "", records * rate, total / steps, p_mean),
        Check(EQUAL, "", float(each.max()), most / steps, p_equal),
    ]


def less_noise_alone(checks: Sequence[Check]) -> list[Check]:
    """Return checks in which more noise than stated is no failure.

    Args:
        checks: with two-sided p-values, which are then too large.

    >>> [one.p_value for one in less_noise_alone([Check("noise", "", 1.0, 1.2, 0.0)])]
    [1.0]
    """
    return [
        replace(one, p_value=1.0) if one.what == NOISE and one.seen > 1 else one for one in checks
    ]


def _both(law: "scipy.stats.rv_frozen", value: float) -> float:
    """Return the two-sided p-value of a value under a continuous distribution."""
    return min(1.0, 2 * min(float(law.cdf(value)), float(law.sf(value))))


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{round(value, 3) + 0.0:.3g}"


def _names(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"layer {names[0]}" if names[0] else ""
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"layers {shown}"
