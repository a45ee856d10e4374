"""Guarantees of clipping and noise that need no measurement, as values for ``run.yaml``.

DP-SGD clips each record's gradient to the l2 norm C and adds Gaussian noise to the mean. It gives
two guarantees:

- *epsilon*, for a single record (``accounting``);
- *channel*, about the secret of a whole batch (``information``, ``bounds``): the clipped mean lies
  in a ball of radius C, and noise of the standard deviation s in each of D coordinates lets at most
  ``D/2 log(1 + C^2 / (D s^2))`` nats through (the *capacity*). A secret of m values moves the mean
  by at most 2 C, which limits the information about it for any D (the *sensitivity*). The smaller
  limit counts. The noise is fresh in each round and independent of all else, so R rounds let at
  most R times as much through, by the chain rule. This holds for every secret of the batch and
  every adversary, whatever else it knows.

References:
    Li et al., CCS 2024, section 6.3.
    Cover and Thomas, Elements of Information Theory, sections 7.9 (chain rule) and 9.4.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from leakgauge.core.checks import require, require_count, require_positive
from leakgauge.privacy.accounting import (
    EXTRA,
    RECORD_LEVEL,
    accountants_installed,
    epsilon_classic,
    epsilon_composed,
    epsilon_gaussian,
    epsilon_passes,
)
from leakgauge.privacy.bounds import (
    advantage_bound_paper,
    describe_bound,
    fano_success_bound,
    smallest_success_bound,
)
from leakgauge.privacy.information import (
    gaussian_channel_information,
    possible,
    sensitivity_information,
)

Plain = dict[str, Any]

LEAST = 1e-6
"""Smallest noise multiplier that counts as noise; below, epsilon exceeds 10^11."""

UNIT = "record, added or removed"
UNLIMITED = (
    "No guarantee: the defense does not add noise of known size to gradients of a limited norm, "
    "and without that a gradient may carry any amount of information."
)
TWO_VALUES = (
    "its Eq. 7 divides by log(m - 1), which is 0 for 2 values, so its Eq. 5 is solved numerically"
)
NO_NOISE = "Without noise epsilon is infinite, and a gradient may carry any amount of information."
NOT_VALID = "not valid above 1: the formula is proven for an epsilon of at most 1 only"
SAMPLED = (
    "by dp-accounting, as if each step drew every record independently (Poisson sampling); the "
    "batches of a shuffled epoch are drawn differently, so it does not hold for them"
)
UNSAMPLED = (
    "each record is in one batch of each round, and the secrecy of its batch gains nothing; "
    "this holds for shuffled epochs too (a removed record counts as a gradient of zero)"
)


@dataclass(frozen=True)
class Release:
    """A Gaussian release: each record's gradient is clipped, and the mean gets noise.

    Attributes:
        clip: C, the largest l2 norm of a record's gradient.
        noise_std: s, standard deviation of the noise on each coordinate of the mean; 0 for none.
    """

    clip: float
    noise_std: float

    def __post_init__(self) -> None:
        require_positive(self.clip, "clip")
        require(
            math.isfinite(self.noise_std) and self.noise_std >= 0,
            f"noise_std is {self.noise_std:g}; expected a finite number from 0 on",
        )


def guarantees(
    release: Release | None,
    *,
    batch_size: int,
    records: int,
    rounds: int,
    parameters: int,
    prior: Sequence[float],
    delta: float = 1e-5,
) -> Plain:
    """Return the guarantees of a defense that need no measurement, as JSON values.

    Args:
        release: clip norm and noise of the defense; None for a defense without them.
        batch_size: k, records of a batch.
        records: n, number of private training records.
        rounds: R; each passes once over the records.
        parameters: D, coordinates of a gradient.
        prior: probabilities of the secret's values ``[m]``.
        delta: probability with which epsilon may fail.

    Returns:
        ``{"epsilon": {...} | None, "channel": {...} | None, "note": str}``. Infinite values
        are None, and a note gives the reason; the note is empty if both guarantees exist.

    >>> run = dict(batch_size=16, records=1600, rounds=1, parameters=9, prior=(0.5, 0.5))
    >>> known = guarantees(Release(clip=1.0, noise_std=2.0), **run)
    >>> round(known["channel"]["information_nats"], 4), known["epsilon"]["noise_multiplier"]
    (0.1116, 32.0)
    >>> guarantees(None, **run)["channel"] is None
    True
    """
    require_count(parameters, "parameters")
    for name, value in (("batch size", batch_size), ("records", records), ("rounds", rounds)):
        require_count(value, name)
    if release is None:
        return {"epsilon": None, "channel": None, "note": UNLIMITED}
    clip, std = release.clip, release.noise_std
    multiplier, channel = std * batch_size / clip, None
    if multiplier >= LEAST:
        capacity = gaussian_channel_information((clip / std) ** 2 / parameters, 1.0, parameters)
        channel = _channel(capacity, sensitivity_information(2 * clip, std, prior), rounds, prior)
    return {
        "epsilon": _epsilon(multiplier, batch_size, records, rounds, delta),
        "channel": channel,
        "note": "" if channel else NO_NOISE,
    }


def _channel(capacity: float, sensitivity: float, rounds: int, prior: Sequence[float]) -> Plain:
    """Return both limits of a round's information, and the bounds from the smaller one."""
    nats = min(capacity, sensitivity)
    total, guess = rounds * nats, float(possible(prior).max())
    success = smallest_success_bound(total, prior)
    return {
        "information_nats": total,
        "information_nats_per_round": nats,
        "capacity_nats_per_round": capacity,
        "sensitivity_nats_per_round": sensitivity,
        "rounds": rounds,
        "advantage_bound": _advantage(success, guess),
        "success_bound": success,
        "fano_advantage_bound": _advantage(fano_success_bound(total, prior), guess),
        "paper_advantage_bound": _paper(total, prior),
        "vacuous": success >= 1,
        "text": describe_bound(total, prior),
    }


def _advantage(success: float, guess: float) -> float:
    return (success - guess) / (1 - guess)


def _paper(nats: float, prior: Sequence[float]) -> Plain:
    """Return the bound of the paper's Eq. 7, or for 2 values that of Eq. 5 with a note."""
    p = possible(prior)
    if len(p) > 2:
        return {"value": advantage_bound_paper(nats, p), "note": ""}
    return {"value": _advantage(fano_success_bound(nats, p), float(p.max())), "note": TWO_VALUES}


def _epsilon(multiplier: float, batch_size: int, records: int, rounds: int, delta: float) -> Plain:
    """Return the epsilon of one step with a full batch and of the whole run."""
    rate, steps = min(1.0, batch_size / records), rounds * math.ceil(records / batch_size)
    known: Plain = {
        "delta": delta,
        "unit": UNIT,
        "noise_multiplier": multiplier,
        "sampling_rate": rate,
        "steps": steps,
        "step_classic": {"value": None, "valid": False, "note": NO_NOISE},
        "step_exact": None,
        "run": {"value": None, "accountant": "rdp", "note": NO_NOISE},
        "run_unamplified": {"value": None, "accountant": "gaussian", "note": NO_NOISE},
        "note": RECORD_LEVEL,
    }
    if multiplier < LEAST:
        return known
    classic = epsilon_classic(1.0, multiplier, delta)
    known["step_classic"] |= {"value": _finite(classic.value), "valid": classic.valid}
    known["step_classic"]["note"] = "" if classic.valid else NOT_VALID
    known["step_exact"] = _finite(epsilon_gaussian(1.0, multiplier, delta).value)
    known["run"] |= _composed(multiplier, rate, steps, delta)
    known["run_unamplified"] |= _passes(multiplier, batch_size, records, rounds, delta)
    return known


def _composed(multiplier: float, rate: float, steps: int, delta: float) -> Plain:
    if not accountants_installed():
        return {"value": None, "note": f"dp-accounting is not installed: {EXTRA}"}
    value = epsilon_composed(multiplier, rate, steps, delta, accountant="rdp").value
    return {"value": _finite(value), "note": SAMPLED}


def _passes(multiplier: float, batch_size: int, records: int, rounds: int, delta: float) -> Plain:
    rest = records % batch_size
    last = multiplier * rest / batch_size if rest else None
    share = rest / records
    found = epsilon_passes(multiplier, rounds, delta, last_multiplier=last, last_share=share)
    note = f"; the last batch of a round has {rest} records, and less noise for its sum"
    return {"value": _finite(found.value), "note": UNSAMPLED + (note if rest else "")}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
