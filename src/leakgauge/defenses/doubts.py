"""Claims of defenses that are wrong by design, which no run needs to show.

A claim is doubted if its sensitivity is below its clip, its epsilon is above ``LARGEST``, its delta
is above one over the number of records, its norm is over fewer arrays than are sent, or the defense
is called private and adds no noise. A user's transform that anybody can undo is doubted, too.
"""

import contextlib
import math
from collections.abc import Iterable, Iterator

from leakgauge.core.checks import InputError
from leakgauge.defenses.catalog import DEFENSES, parse_defense
from leakgauge.defenses.claims import CALLED_PRIVATE, Statement, sensitivity_for, statement_of
from leakgauge.defenses.coverage import SentArrays, partly, uncovered, undone
from leakgauge.privacy.promises import ADD, CLIENT, REPLACE, GaussianRelease, Neighbours

LARGEST = 50.0
"""An epsilon above this one is no protection: odds of one to 10^21 become certainty."""

MILLION = 1_000_000
"""Number of parameters for which the epsilon of ``svt`` is given, where the model is not known."""

ABSENT, OTHER = Neighbours(CLIENT, ADD), Neighbours(CLIENT, REPLACE)


def doubts(
    texts: Iterable[str],
    *,
    batch_size: int | None = None,
    records: int | None = None,
    sent: SentArrays | None = None,
) -> tuple[str, ...]:
    """Return one line for each claim that is wrong by design, each once.

    Args:
        texts: defenses, as ``parse_defense`` reads them. Code of a user that cannot be read is
            skipped: the command that runs it refuses it.
        batch_size: records of a batch; None if unknown, and the noise of DP-SGD with it.
        records: number of records that a delta is compared with; None if unknown.
        sent: arrays of the model that a norm may miss; None if unknown.

    Raises:
        InputError: a setting of a defense is wrong.

    >>> doubts(["percentile-privacy", "sign"])  # doctest: +ELLIPSIS
    ('`percentile-privacy` gives no differential privacy: it drops and cuts coordinates, and ...',)
    """
    found: list[str] = []
    for text in texts:
        word = text.partition(":")[0].strip()
        if word in DEFENSES:
            found += _doubts(text, batch_size, records)
            found += uncovered(text, word, sent or SentArrays())
        else:
            with contextlib.suppress(InputError):
                defense = parse_defense(text, batch_size=batch_size or 1)
                found += (*partly(text, defense), *undone(text, defense))
    return tuple(dict.fromkeys(found))


def _doubts(text: str, batch_size: int | None, records: int | None) -> Iterator[str]:
    stated = statement_of(text, batch_size=batch_size or 1)
    if stated.why:
        if stated.word in CALLED_PRIVATE:
            yield f"`{text}` gives no differential privacy: {stated.why}"
        return
    if stated.word == "svt":
        yield from _sparse(text, stated)
    elif stated.word == "local-dp":
        yield from _local(text, stated)
    elif batch_size is not None and stated.mechanism is not None:
        yield from _large(text, stated.mechanism, stated.usual)
    claim = stated.claim
    if claim is not None and records and claim.delta > 1 / records:
        yield (
            f"`{text}` has a delta of {claim.delta:g}, above 1/{records} for {records} records, so "
            f"it may publish a whole record: choose a delta well below {1 / records:.1g}"
        )


def _local(text: str, stated: Statement) -> Iterator[str]:
    """Doubt a sensitivity below the clip, or an epsilon that protects nothing."""
    one, release, claim = stated.settings, stated.mechanism, stated.claim
    assert release is not None
    assert claim is not None
    if one.sensitivity < one.clip:
        write = sensitivity_for(claim, one.clip, OTHER)
        same = large(claim.epsilon * one.clip / one.sensitivity)
        yield (
            f"`{text}` claims epsilon {claim.epsilon:g}, but its sensitivity {one.sensitivity:g} "
            f"is below its clip {one.clip:g}; at the clip the same formula gives "
            f"{same}, and {_exact(release, claim.delta)}: for epsilon {claim.epsilon:g} "
            f"write sensitivity={write:g}"
        )
    elif claim.epsilon > LARGEST:
        yield (
            f"`{text}` claims epsilon {large(claim.epsilon)}, which protects nothing; "
            f"{_exact(release, claim.delta)}: choose an epsilon of 8 or less"
        )


def _exact(release: GaussianRelease, delta: float) -> str:
    added, replaced = (release.follows(near, delta).epsilon for near in (ABSENT, OTHER))
    return (
        f"the exact epsilon of one round is {large(added)} (client added) or {large(replaced)} "
        f"(client replaced) at delta {delta:g}"
    )


def _sparse(text: str, stated: Statement) -> Iterator[str]:
    """Doubt noise on values that is not part of the epsilon."""
    release = stated.sparse(MILLION)
    if release.follows(OTHER, 0.0).least <= LARGEST:
        return
    yield (
        f"`{text}` claims epsilon {stated.settings.epsilon:g} and spends "
        f"{stated.settings.noise:g} more on each coordinate that it sends; epsilon of one round is "
        f"{large(release.counted)} per million parameters (client replaced, delta 0): use local-dp "
        "with a sensitivity of twice the clip, or noise of the server"
    )


def _large(text: str, release: GaussianRelease, near: Neighbours) -> Iterator[str]:
    epsilon = release.follows(near, 1e-5).epsilon
    if epsilon > LARGEST:
        yield (
            f"`{text}` promises epsilon {large(epsilon)} for one step ({near}, delta 1e-05), which "
            "protects nothing: add more noise"
        )


def large(value: float) -> str:
    """Return an epsilon in words, with three digits from a million on.

    >>> large(70333.1), large(2.131e8), large(3e16), large(4.377), large(math.inf)
    ('70,333', '213 million', '3.00e+16', '4.38', 'infinite')
    """
    if math.isinf(value):
        return "infinite"
    for unit, word in ((1e15, ""), (1e12, " trillion"), (1e9, " billion"), (1e6, " million")):
        if value >= unit:
            return f"{value / unit:.3g}{word}" if word else f"{value:.2e}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
