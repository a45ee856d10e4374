"""The result of each attempt in a sentence."""

from leakgauge.core.checks import InputError
from leakgauge.inversion.metrics.table import LOSS, PSNR
from leakgauge.inversion.report.levels import verdict_of
from leakgauge.inversion.run.attempt import title_of
from leakgauge.report.grouping import Test
from leakgauge.report.wording import count, percent, short
from leakgauge.results.measurements import Estimate, Measurement

_OF_IMAGES = {
    "strong": "The images were rebuilt: they look like the true ones",
    "clear": "The images were rebuilt well enough to be recognised",
    "weak": "Parts of the images were rebuilt",
    "none": "The images were not rebuilt",
}


def title(test: Test) -> str:
    """Return an attempt in a few words."""
    return title_of(test.adversary, test.defense, test.knowledge)


def sentence(test: Test) -> str:
    """Return the result of an attempt, with its title, for a reader who is no specialist.

    Raises:
        InputError: the attempt has neither a score nor a loss.
    """
    return f"{title(test)}: {statement(test)}"


def statement(test: Test) -> str:
    """Return the result of an attempt, without its title; raises as ``sentence``."""
    verdict = verdict_of(test)
    if verdict.figure is None:
        return _of_loss(test)
    if verdict.figure.metric == PSNR:
        return f"{_OF_IMAGES[verdict.level]}. {_of_psnr(verdict.figure)}"
    return _of_columns(verdict.figure)


_MATCHED = {
    "greedy": "matched by rough images, the most similar pairs first (the paper's way)",
    "optimal": "matched by rough images, with the smallest sum of distances (ours)",
    "gradients": "matched by rough images and then by gradients (ours)",
    "known": "matched as they truly are: the attacker was told",
}
_JOINED = {
    "per-sample": "each record was rebuilt from the one update of each epoch that is matched for "
    "it (the paper's rule)",
    "all": "all records were rebuilt together from all updates (our rule)",
}


def joint_sentence(test: Test) -> str:
    """Return by which rules an attempt used several epochs; empty with a single one."""
    details = next(iter(test.figures.values())).details
    if "joint" not in details:
        return ""
    later = details["later"]
    weighed = "equally" if later == "1" else f"1 in the first and {later} in later epochs"
    return (
        f"{title(test)}: records of several epochs were {_MATCHED[details['matching']]}; "
        f"{_JOINED[details['joint']]}, and updates weigh {weighed}."
    )


def certainty(estimate: Estimate) -> str:
    """Return the interval of a mean over images; a single image says nothing of others."""
    if estimate.n == 1:
        return "1 image, so no interval"
    ends = f"{short(estimate.low)} to {short(estimate.high)}"
    return f"95 % interval {ends}, {count(estimate.n)} images"


def _of_psnr(psnr: Measurement) -> str:
    return (
        f"PSNR {short(psnr.estimate.value)} dB ({certainty(psnr.estimate)}); the mean colour "
        f"alone scores {short(psnr.chance)} dB."
    )


def _of_columns(columns: Measurement) -> str:
    return (
        f"{percent(columns.estimate.value)} of the columns of {columns.estimate.n} records were "
        f"rebuilt right; guessing the most frequent values gives {percent(columns.chance)}."
    )


def _of_loss(test: Test) -> str:
    loss = test.at(LOSS)
    if loss is None:
        raise InputError(
            f"the measurements of {title(test)} lack both a score and a loss; run it again"
        )
    return (
        f"the search for {count(loss.estimate.n)} records ended at a loss of "
        f"{short(loss.estimate.value)}. The true records are not known here, so nothing says how "
        "near these are."
    )
