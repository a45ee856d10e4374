"""Checks of a guarantee's settings, and the mechanism that they claim."""

import math

from leakgauge.core.checks import require, require_choice
from leakgauge.core.parsing import read
from leakgauge.defenses.catalog import DEFENSES
from leakgauge.guarantee.filter import follows_from, is_filter
from leakgauge.guarantee.mechanism import DPSGDMechanism, build_mechanism
from leakgauge.guarantee.spec import CLIP, CRAFTED, MECHANISMS, NOISE, GuaranteeSpec
from leakgauge.privacy.estimate import largest_showable
from leakgauge.runs.spec import check_bounds

_DPSGD = {"dpsgd": {"clip": float, "noise": float}}


def check(spec: GuaranteeSpec) -> None:
    """Raise an error for settings that are wrong for any data.

    Raises:
        InputError: a value is outside its bounds, settings contradict each other, the trials are
            too few, or the mechanism cannot be loaded.
    """
    check_bounds(spec)
    require(
        not spec.numeric,
        f"--loss {spec.loss} has labels of numbers, and this audit tries every class for its "
        "record; leave out --loss and cut the label into ranges with --bins",
    )
    require(spec.delta < 1, f"--delta is {spec.delta:g}; expected a number between 0 and 1")
    require(
        spec.domain is None or spec.canary == CRAFTED,
        "--domain needs --canary crafted; leave one out",
    )
    if is_filter(spec.mechanism):
        _check_filter(spec)
    else:
        if ":" not in spec.mechanism:
            require_choice(spec.mechanism, "--mechanism", (*MECHANISMS, *DEFENSES))
        build_mechanism(spec.mechanism, claimed_by(spec))
    largest_showable(spec.trials, spec.delta)


def _check_filter(spec: GuaranteeSpec) -> None:
    """Refuse settings that contradict those of the filter.

    A resolved ``spec`` names the filter's own clip and noise.
    """
    own = follows_from(spec.mechanism)
    for name, given, known in (("clip", spec.clip, own.clip), ("noise", spec.noise, own.noise)):
        require(
            given is None or math.isclose(given, known, rel_tol=1e-6),
            f"--{name} is {given}, and --mechanism {spec.mechanism} has its own, {known:g}; leave "
            f"--{name} out",
        )
    require(
        spec.rounds == 0,
        f"--rounds trains with DP-SGD, and --mechanism {spec.mechanism} is a filter; leave "
        "--rounds out",
    )


def promised_by(defenses: tuple[str, ...]) -> str | None:
    """Return the first defense that promises differential privacy, or None.

    >>> promised_by(("none", "sign", "dpsgd:clip=1,noise=0.5"))
    'dpsgd:clip=1,noise=0.5'
    """
    return next((text for text in defenses if text.partition(":")[0] == "dpsgd"), None)


def claimed_by(spec: GuaranteeSpec) -> DPSGDMechanism:
    """Return the DP-SGD that the mechanism claims to be, or that follows from a filter's noise.

    Clip and noise are those of a filter, else of the settings, else those of a ``dpsgd`` defense,
    else 2 and 0.1.

    Raises:
        InputError: clip or noise is not above 0.

    >>> claimed_by(GuaranteeSpec(defense=("none", "dpsgd:clip=1,noise=0.5")))
    DPSGDMechanism(clip=1.0, noise=0.5)
    """
    if is_filter(spec.mechanism):
        return follows_from(spec.mechanism)
    _, settings = read(promised_by(spec.defense) or "dpsgd", _DPSGD, "defense")
    clip = settings.get("clip", CLIP) if spec.clip is None else spec.clip
    noise = settings.get("noise", NOISE) if spec.noise is None else spec.noise
    return DPSGDMechanism(clip, noise)
