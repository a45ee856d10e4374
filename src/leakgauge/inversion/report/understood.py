"""Whether a failed search says something of the records, and why not, in words."""

from dataclasses import replace

from leakgauge.inversion.metrics.table import NOT_KNOWN, TOKEN_ACCURACY
from leakgauge.inversion.report.by_scores import InversionVerdict
from leakgauge.inversion.words import ALIGNED, DOUBTS, SHORT, STOPPED, UNKNOWN_DEFENSE
from leakgauge.inversion.words import MATCHED as LEAST_MATCHED
from leakgauge.report.wording import count, percent
from leakgauge.results.measurements import Measurement


def or_unfinished(verdict: InversionVerdict, short: Measurement | None) -> InversionVerdict:
    """Return the verdict, or an inconclusive one where nothing was found and a search fell short.

    Args:
        verdict: verdict on the scores.
        short: share of the updates for which it did.
    """
    if verdict.level != "none" or short is None or short.estimate.value == 0:
        return verdict
    if NOT_KNOWN in short.details.items():
        return replace(verdict, level="inconclusive", words=UNKNOWN_DEFENSE)
    of_text = verdict.figure is not None and verdict.figure.metric == TOKEN_ACCURACY
    return replace(verdict, level="inconclusive", words=STOPPED if of_text else SHORT)


def short_sentence(short: Measurement, words: str) -> str:
    """Return for how many updates the search fell short, by the words of the verdict."""
    if words == UNKNOWN_DEFENSE:
        return "No attack here knows this defense, so one that does may find more."
    updates = short.estimate.n
    few = round(short.estimate.value * updates)
    where = "" if updates == 1 else f" for {few} of {count(updates)} updates"
    if words == STOPPED:
        return (
            f"The search was stopped{where}, since it cannot tell tokens apart there (see the "
            "warnings), so another attack may find more."
        )
    return (
        f"The search fell short{where}: the true records lie nearer to the update than the rebuilt "
        "ones, so a better search would find more."
    )


def is_understood(matched: Measurement | None, assumed: str) -> bool:
    """Return whether a failed search says something of the records.

    It reproduced the update, as a method without a search does, under no assumption of ``DOUBTS``.
    """
    reproduced = matched is None or matched.estimate.value >= LEAST_MATCHED
    return reproduced and not any(doubt in assumed for doubt in DOUBTS)


def matched_sentence(matched: Measurement) -> str:
    """Return how well the update of rebuilt records matches the one that was sent, in words."""
    value, aligned = matched.estimate.value, matched.details.get(ALIGNED)
    ours = f"the update of the rebuilt records matches the sent one to {percent(max(value, 0.0))}"
    if value >= LEAST_MATCHED:
        return f"Matched: {ours}."
    if aligned is not None and float(aligned) >= LEAST_MATCHED:
        return (
            f"Matched in direction to {percent(float(aligned))}, and not in size: {ours}. A "
            "clipped or rescaled gradient of these records has this direction. Other records may "
            "give it, too, under an optimizer that this attack does not model. Look at the records."
        )
    return (
        f"Not matched: {ours} (a search that models the client reaches {percent(LEAST_MATCHED)}), "
        "so the update was made in a way that this attack does not model, or the search was too "
        "short."
    )
