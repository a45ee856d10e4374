"""The verdict of an attempt, its sentence, and the guesses to compare it with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from leakgauge.core.checks import InputError
from leakgauge.inversion.metrics.table import (
    CERTIFIED,
    FELL_SHORT,
    LABEL_RESIDUAL,
    LAYER_CERTIFIED,
    LAYER_INPUTS,
    LOSS,
    MATCHED,
    PSNR,
    RECOGNISABLE,
    RECORDS,
    TOKEN_ACCURACY,
)
from leakgauge.inversion.report.by_scores import (
    SCORES,
    SOME_IMAGES,
    InversionVerdict,
    exact_records,
    of_scores,
    single_images,
)
from leakgauge.inversion.report.certificates import certificate_sentence, is_certified, is_open
from leakgauge.inversion.report.understood import (
    is_understood,
    matched_sentence,
    or_unfinished,
    short_sentence,
)
from leakgauge.inversion.words import (
    ASSUMED,
    CLASS_MEAN,
    DRAWN,
    FREQUENT,
    LAYER_EXACT,
    LAYER_SURE,
    MEAN,
    NEAREST,
    NOT_CERTIFIED,
    NOT_UNDERSTOOD,
    PUBLIC,
    SHORT,
    STOPPED,
    UNKNOWN_DEFENSE,
)
from leakgauge.report.compare import Group
from leakgauge.report.grouping import Test
from leakgauge.report.section import LEVELS, Badge, Level
from leakgauge.report.wording import count, number, percent, short
from leakgauge.results.measurements import Estimate, Measurement


def verdict_of(test: Test) -> InversionVerdict:
    """Return the verdict of an attempt by PSNR, the columns of a table, or tokens."""
    found = _or_layer(of_scores(*map(test.at, SCORES)), test.at(LAYER_INPUTS))
    if found.level == "unknown" and is_certified(test):
        if test.at(LAYER_CERTIFIED) is not None:
            return replace(found, level="clear", words=LAYER_SURE, strength=1.0)
        return replace(found, level="strong", words="Records certified", strength=1.0)
    found = or_unfinished(found, test.at(FELL_SHORT))
    loss = test.at(LOSS)
    assumed = loss.details.get(ASSUMED, "") if loss is not None else ""
    if found.level in ("none", "unknown") and not is_understood(test.at(MATCHED), assumed):
        level: Level = "inconclusive" if found.figure else "unknown"
        return replace(found, level=level, words=NOT_UNDERSTOOD)
    if found.level == "none" and is_open(test):
        return replace(found, level="inconclusive", words=NOT_CERTIFIED)
    return found


def _or_layer(verdict: InversionVerdict, exact: Measurement | None) -> InversionVerdict:
    """Return the verdict, or a clear one where exact inputs to a layer leak more than records."""
    if exact is None or exact.estimate.value == 0 or verdict.level not in ("none", "weak"):
        return verdict
    return InversionVerdict("clear", LAYER_EXACT, exact, exact.estimate.value)


def badge(group: Group) -> Badge | None:
    """Return the verdict on the means of a grid's cells; None without a score."""
    verdict = of_scores(*map(group.means.get, SCORES))
    verdict = _or_layer(verdict, group.means.get(LAYER_INPUTS))
    if verdict.figure is None:
        return None
    verdict = or_unfinished(verdict, group.means.get(FELL_SHORT))
    return Badge(verdict.level, verdict.words, verdict.strength)


def worst(tests: list[Test]) -> tuple[Test, InversionVerdict]:
    """Return the attempt that came nearest to the truth, with its verdict."""
    return by_nearness(tests)[0]


def by_nearness(tests: list[Test]) -> list[tuple[Test, InversionVerdict]]:
    """Return the attempts with their verdicts, the one nearest to the truth first."""

    verdicts = [(test, verdict_of(test)) for test in tests]
    # The share of exact inputs to a layer and a score of records have no common scale.
    by_level = len({one.figure.metric for _, one in verdicts if one.figure is not None}) > 1

    def nearness(one: tuple[Test, InversionVerdict]) -> tuple[int, float]:
        figure = one[1].figure
        if figure is None:
            return -1, 0.0
        return LEVELS[one[1].level] if by_level else 0, figure.estimate.value

    return sorted(verdicts, key=nearness, reverse=True)


_OF_IMAGES = {
    "strong": "The images were rebuilt: they look like the true ones",
    "clear": "The images were rebuilt well enough to be recognised",
    "weak": "Parts of the images were rebuilt",
    "none": "The images were not rebuilt",
    "inconclusive": "The update was not understood",
    SHORT: "The images were not rebuilt",
    UNKNOWN_DEFENSE: "The images were not rebuilt",
}


def sentence(test: Test) -> str:
    """Return the result of an attempt, with its title, for non-specialist readers.

    Raises:
        InputError: the attempt has neither a score nor a loss.
    """
    return f"{test.who}: {statement(test)}"


def statement(test: Test) -> str:
    """Return the result of an attempt, without its title; raises like ``sentence``."""
    return _of_figure(test) + certificate_sentence(test) + _of_counted_labels(test)


def _of_figure(test: Test) -> str:
    verdict = verdict_of(test)
    return " ".join(filter(None, (_result(test, verdict), _training(test, verdict))))


def _result(test: Test, verdict: InversionVerdict) -> str:
    if verdict.figure is None:
        return _of_loss(test)
    if verdict.figure.metric == PSNR:
        known = _OF_IMAGES.get(verdict.words, _OF_IMAGES[verdict.level])
        said = f"{known}. {_of_psnr(verdict.figure)}"
        if verdict.words != SOME_IMAGES:
            return said
        return f"{single_images(test.at(RECOGNISABLE))} Over all images: {_of_psnr(verdict.figure)}"
    if verdict.figure.metric == LAYER_INPUTS:
        return "The records themselves were not rebuilt."
    if verdict.figure.metric == TOKEN_ACCURACY:
        return _of_parts(verdict.figure, "tokens")
    said = _of_parts(verdict.figure, "columns")
    exact = "" if verdict.level == "strong" else exact_records(test.at(RECORDS))
    return " ".join(filter(None, (said, exact)))


def _training(test: Test, verdict: InversionVerdict) -> str:
    """Return what was assumed of the training, and the match of the update where little leaks."""
    loss, matched, short = test.at(LOSS), test.at(MATCHED), test.at(FELL_SHORT)
    said = []
    if short is not None and verdict.words in (SHORT, STOPPED, UNKNOWN_DEFENSE):
        said.append(short_sentence(short, verdict.words))
    elif matched is not None and verdict.level in ("none", "unknown", "inconclusive"):
        said.append(matched_sentence(matched))
    if loss is not None and ASSUMED in loss.details:
        said.append(f"Assumed: {loss.details[ASSUMED]}.")
    return " ".join(said)


UNDETERMINED = 0.5
"""Distance from a whole number, in records, from which a count may as well be another one."""


def _of_counted_labels(test: Test) -> str:
    """Return how sure labels are that were counted from the gradient; empty for others."""
    residual = test.at(LABEL_RESIDUAL)
    if residual is None:
        return ""
    far, several = residual.estimate.value, residual.estimate.n > 1
    sure = "so the gradient does not determine them" if far >= UNDETERMINED else "0 is exact"
    return (
        f" Labels were counted from the gradient: the counts lie up to {number(far)} records from "
        f"whole numbers{', on average over the updates' if several else ''} ({sure})."
    )


_MATCHED = {
    "greedy": "matched by rough images, the most similar pairs first (the paper's way)",
    "optimal": "matched by rough images, with the smallest sum of distances (ours)",
    "gradients": "matched by rough images and then by gradients (ours)",
    "known": "matched correctly: the attacker knew the matching",
}
_JOINED = {
    "per-sample": "each record was rebuilt from the one update of each epoch that is matched for "
    "it (the paper's rule)",
    "all": "all records were rebuilt together from all updates (our rule)",
}


def joint_sentence(test: Test) -> str:
    """Return how an attempt combined several epochs; empty with a single one."""
    details = next(iter(test.figures.values())).details
    if "joint" not in details:
        return ""
    later = details["later"]
    weighed = "equally" if later == "1" else f"1 in the first and {later} in later epochs"
    return (
        f"{test.who}: records of several epochs were {_MATCHED[details['matching']]}; "
        f"{_JOINED[details['joint']]}, and updates weigh {weighed}."
    )


def certainty(estimate: Estimate) -> str:
    """Return the interval of a mean over images in words; a single image has none."""
    if estimate.n == 1:
        return "1 image, so no interval"
    ends = f"{short(estimate.low)} to {short(estimate.high)}"
    return f"95 % interval {ends}, {count(estimate.n)} images"


def _of_psnr(psnr: Measurement) -> str:
    return (
        f"PSNR {short(psnr.estimate.value)} dB ({certainty(psnr.estimate)}); the mean colour "
        f"alone scores {short(psnr.chance)} dB."
    )


def _of_parts(share: Measurement, parts: str) -> str:
    frequent = "tokens" if parts == "tokens" else "values"
    return (
        f"{percent(share.estimate.value)} of the {parts} of {share.estimate.n} records were "
        f"rebuilt right; guessing the most frequent {frequent} gives {percent(share.chance)}."
    )


def _of_loss(test: Test) -> str:
    loss = test.at(LOSS)
    if loss is None:
        raise InputError(
            f"the measurements of {test.who} lack both a score and a loss; run it again"
        )
    if test.at(CERTIFIED) is not None or test.at(LAYER_CERTIFIED) is not None:
        return f"{count(loss.estimate.n)} records were sought. The true ones are not known here."
    return (
        f"the search for {count(loss.estimate.n)} records ended at a loss of "
        f"{short(loss.estimate.value)}. The true records are not known here, so their "
        "distance is not known."
    )


WORDS = {
    MEAN: "mean of the public records",
    CLASS_MEAN: "mean of the public records with the same label",
    PUBLIC: "public record nearest to that mean",
    FREQUENT: "most frequent public token at each position",
    DRAWN: "random rows: each column drawn from the public records by itself",
    NEAREST: "public record nearest to the truth: chosen by the truth, so no attacker can",
}
"""Guesses in words."""


@dataclass(frozen=True)
class Guessed:
    """Scores of guesses for attempts that had the same labels.

    Attributes:
        titles: titles of the attempts.
        best: best guess for an attacker; None if it was not measured.
        scores: value, low and high by guess (in words) and metric.
    """

    titles: tuple[str, ...]
    best: str | None
    scores: Mapping[str, Mapping[str, Mapping[str, float]]]


def guesses_of(facts: Sequence[Mapping[str, Any]], tests: Sequence[Test]) -> list[Guessed]:
    """Return the guesses of all attempts, grouped by equal guesses.

    Args:
        facts: facts of each attempt, from ``read_facts``; empty if none are kept.
        tests: attempts in the same order.
    """
    found: dict[str, tuple[list[str], Mapping[str, Any]]] = {}
    for test, fact in zip(tests, facts, strict=bool(facts)):
        if fact.get("baselines"):
            key = repr(fact["baselines"])
            found.setdefault(key, ([], fact))[0].append(test.who)
    return [
        Guessed(
            tuple(titles),
            WORDS.get(str(fact.get("best_guess"))),
            {WORDS[name]: scores for name, scores in fact["baselines"].items() if name in WORDS},
        )
        for titles, fact in found.values()
    ]
