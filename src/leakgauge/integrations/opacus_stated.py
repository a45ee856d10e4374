"""What an Opacus training states to its accountant, beside what it does in each step."""

import math
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from leakgauge.integrations.opacus_canaries import Draws
from leakgauge.integrations.opacus_epsilons import Steps, prv_epsilon, renyi_epsilon
from leakgauge.integrations.opacus_samplers import Ints
from leakgauge.privacy.conformance import (
    CLAIM,
    CLIP,
    COUNTED,
    FAILS_BY_CHANCE,
    Check,
    Conformance,
    ReleaseSums,
    batch_checks,
    conformance_of,
)
from leakgauge.privacy.dp_audit import GAUSSIAN
from leakgauge.privacy.estimate import epsilon_of_mu
from leakgauge.privacy.profile import Profile
from leakgauge.privacy.whole_audit import KnownShape
from leakgauge.privacy.whole_scores import epsilon_of_draws
from leakgauge.results.statistics import Floats

PRV_ERROR = 0.02
"""Half of the width of the interval of epsilon whose upper end Opacus' PRV accountant returns."""

LARGE = 100.0
"""An epsilon up to which tight accountants take little time and memory."""


class Stated:
    """Keeps what the accountant counts, and sums what the optimizer releases.

    Args:
        engine: a ``PrivacyEngine``; of anything without an accountant's history the optimizer's own
            noise counts as stated.
        draws: draws of the canaries, from the loader.
        layers: layer of each coordinate that is read ``[c]``.
        names: name of each layer.
        noise_multiplier: stated noise multiplier in place of the counted one.
    """

    def __init__(
        self,
        engine: Any,
        draws: Draws,
        layers: Ints,
        names: Sequence[str],
        noise_multiplier: float | None,
    ) -> None:
        self._engine, self._draws = engine, draws
        self._layers, self._names, self._noise = layers, names, noise_multiplier
        self._sums = ReleaseSums(len(layers))
        self._counted_before = self._counted()
        self.steps, self.counted, self.batches = 0, 0, 0
        self.history: Counter[tuple[float, float]] = Counter()
        self._squares = 0.0  # of the stated noise, summed over steps
        self._sizes: dict[tuple[int, float], list[int]] = {}

    def start(self) -> None:
        """Leave out what the accountant counted before."""
        self._counted_before = self._counted()

    def step(self, optimizer: Any, left: Floats, drawn: Ints, records: int) -> None:
        """Take in a step, after the accountant.

        Args:
            optimizer: a ``DPOptimizer``.
            left: released minus the other records' sum ``[c]``, in clipping norms.
            drawn: how often the canary of each coordinate is in the step ``[c]``.
            records: number of records in the step.
        """
        batches, counted = optimizer.accumulated_iterations, self._counted()
        noise, rate = float(optimizer.noise_multiplier), batches / self._draws.batches
        if counted is not None and counted != self._counted_before:
            noise, rate = (float(one) for one in self._engine.accountant.history[-1][:2])
            self.counted += 1
            self.history[noise, rate] += 1
        self._counted_before = counted
        self.steps += 1
        self.batches += batches
        self._sums.add(left, drawn, self._noise or noise)
        self._squares += (self._noise or noise) ** 2
        self._sizes.setdefault((batches, rate / batches), []).append(records)

    def shape(self) -> KnownShape | None:
        """Return the shift of canaries by one draw, and its epsilon; None without any noise.

        With Poisson sampling and an accountant's history, the epsilon is the lower end of what
        Opacus' PRV accountant gives for the counted steps, with the noise that the shift means.
        With another sampler it is that of the canary's sum over steps, for an auditor who does not
        know the batches.
        """
        shift = self._sums.shift()
        if shift is None:
            return None
        known = GAUSSIAN if self._draws.rate is None else f"{GAUSSIAN}, Poisson sampling"
        of, n = lru_cache(self._epsilon_of_shift), len(self._draws.members)
        return KnownShape(shift, of, n, known, self._at_most if self._draws.rate else None)

    def _at_most(self, shift: float, delta: float) -> float:
        """Return an upper bound of the epsilon of a shift, which is quick."""
        return renyi_epsilon(self._steps(1 / shift), delta) if self.history else math.inf

    def _epsilon_of_shift(self, shift: float, delta: float) -> float:
        if shift <= 0:
            return 0.0
        mu = shift / math.sqrt(self._squares)
        of_sums = epsilon_of_draws(self._draws.share_of(self.batches), mu, delta)
        poisson = self._draws.rate is not None and bool(self.history)
        if not poisson or self._is_large(shift, delta):
            return of_sums
        with suppress(ArithmeticError, ValueError, RuntimeError):
            most = prv_epsilon(self._steps(1 / shift), delta, PRV_ERROR)
            return max(of_sums, most - 2 * PRV_ERROR)
        return of_sums

    def _steps(self, factor: float) -> Steps:
        """Return the counted steps, with the stated noise times a factor."""
        return tuple(
            (factor * (self._noise or noise), rate, number)
            for (noise, rate), number in self.history.items()
        )

    def _is_large(self, shift: float, delta: float) -> bool:
        """Return whether a tight accountant would take much time and memory."""
        steps = sum(
            number / (self._noise or noise or 1e-9) ** 2
            for (noise, _), number in self.history.items()
        )
        without_sampling = epsilon_of_mu(shift * math.sqrt(steps), delta)
        return without_sampling > LARGE and self._at_most(shift, delta) > LARGE

    def conformance(
        self, claim: Profile | None, confidence: float, *, poisson: bool = True
    ) -> Conformance:
        """Return the checks.

        Args:
            claim: claim in place of the accountant's.
            confidence: confidence of the audit.
            poisson: whether the claim counts Poisson sampling, as accountants of Opacus do.
        """
        checks = self._sums.checks(self._layers, self._names)
        clipped = {one.where for one in checks if one.what == CLIP}
        unseen = [f"clipping in layer {name}" for name in self._names if name not in clipped]
        if len(unseen) > 3:
            unseen = [f"clipping in {len(unseen)} of {len(self._names)} layers (no draw there)"]
        (batches, rate), sizes = max(self._sizes.items(), key=lambda one: len(one[1]))
        if not poisson:
            unseen.append("sampling, since the claim counts the loader's own")
        elif self._draws.records is None:
            unseen.append("sampling, since the loader has no dataset")
        elif rate <= 1:
            checks += batch_checks(sizes, batches * self._draws.records, rate)
        if self._counted() is None:
            unseen.append("steps counted, since the engine has no accountant with a history")
        else:
            p = float(self.counted == self.steps)
            checks.append(Check(COUNTED, "", self.steps, self.counted, p))
        if claim is not None and poisson and self.history:
            least = self._least_epsilon(claim)
            p = float(claim.epsilon > 0.95 * least - 0.02)  # accountants round by as much
            checks.append(Check(CLAIM, "", claim.epsilon, least, p))
        return conformance_of(checks, FAILS_BY_CHANCE * (1 - confidence), unseen)

    def epsilon_with(self, delta: float) -> Callable[[float], float]:
        """Return the epsilon of the counted steps as a function of their noise.

        The noise is the standard deviation of a coordinate's sum over steps, in clipping norms. The
        epsilon is that of Opacus' Renyi accountant; without Poisson sampling, which no accountant
        of Opacus counts, that of Gaussian noise, for an auditor who knows the batches.

        Args:
            delta: in (0, 1).
        """
        return lambda noise: self._epsilon_with(noise, delta)

    def _epsilon_with(self, noise: float, delta: float) -> float:
        if self._draws.rate is None:
            often = math.ceil(self.batches / self._draws.batches)
            return epsilon_of_mu(math.sqrt(often * self.steps) / noise, delta)
        of_steps = math.sqrt(sum(number * one**2 for (one, _), number in self.history.items()))
        return self._epsilon("rdp", delta, noise / of_steps)

    def _least_epsilon(self, claim: Profile) -> float:
        """Return an epsilon that the counted steps have at least, by each accountant of Opacus.

        They need not be computed where epsilon is large: more noise has a smaller one.
        """
        factor = 1.0
        while not (least := self._epsilon("rdp", claim.delta, factor)) <= LARGE:
            factor *= 2
        for kind in ("prv", "gdp") if len(self.history) == 1 else ("prv",):
            if least > claim.epsilon:  # these are slower, or hold for constant noise
                with suppress(ArithmeticError, ValueError, RuntimeError):  # no claim either
                    least = min(least, self._epsilon(kind, claim.delta, factor))
        return least

    def _epsilon(
        self,
        kind: str,
        delta: float,
        factor: float = 1.0,
    ) -> float:
        """Return what an accountant gives for the counted steps, with other noise."""
        from opacus.accountants import create_accountant

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on orders, domains and approximations
            accountant = create_accountant(kind)
            accountant.history = [(factor * noise, q, n) for (noise, q), n in self.history.items()]
            return float(accountant.get_epsilon(delta))

    def _counted(self) -> int | None:
        history = getattr(getattr(self._engine, "accountant", None), "history", None)
        return None if history is None else sum(int(one[2]) for one in history)
