"""Checks of a guarantee's settings, and the mechanism that they claim."""

import math

from leakgauge.core.checks import require, require_choice
from leakgauge.core.parsing import read
from leakgauge.defenses.catalog import DEFENSES
from leakgauge.guarantee.filter import FilterMechanism, filter_of, is_filter
from leakgauge.guarantee.mechanism import DPSGDMechanism, build_mechanism
from leakgauge.guarantee.spec import CLIP, CRAFTED, MECHANISMS, NOISE, GuaranteeSpec
from leakgauge.privacy.estimate import largest_showable
from leakgauge.privacy.promises import RECORD, Neighbours
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
        require(
            spec.server_noise is None,
            f"--server-noise comes after fixed-clipping or adaptive-clipping, and {spec.mechanism} "
            "has its own noise; leave it out",
        )
        build_mechanism(spec.mechanism, dpsgd_of(spec))
    largest_showable(spec.trials, spec.delta)


def _check_filter(spec: GuaranteeSpec) -> None:
    """Refuse settings that contradict those of the filter.

    A resolved ``spec`` names the filter's own clip and noise.
    """
    own = filter_of(spec.mechanism, spec.server_noise).dpsgd
    for name, given in (("clip", spec.clip), ("noise", spec.noise)):
        known = None if own is None else getattr(own, name)
        require(
            given is None or (known is not None and math.isclose(given, known, rel_tol=1e-6)),
            f"--{name} is {given}, and --mechanism {spec.mechanism} has its own settings; leave "
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


def claimed_by(spec: GuaranteeSpec) -> DPSGDMechanism | FilterMechanism:
    """Return what the mechanism claims to be: a filter itself, or the DP-SGD of ``dpsgd_of``.

    Raises:
        InputError: clip or noise is not above 0, or a filter cannot be audited.
    """
    if is_filter(spec.mechanism):
        return filter_of(spec.mechanism, spec.server_noise)
    return dpsgd_of(spec)


def dpsgd_of(spec: GuaranteeSpec) -> DPSGDMechanism:
    """Return the DP-SGD that a mechanism other than a filter claims to be.

    Clip and noise are those of the settings, else those of a ``dpsgd`` defense, else 2 and 0.1.

    Raises:
        InputError: clip or noise is not above 0.

    >>> dpsgd_of(GuaranteeSpec(defense=("none", "dpsgd:clip=1,noise=0.5")))
    DPSGDMechanism(clip=1.0, noise=0.5)
    """
    _, settings = read(promised_by(spec.defense) or "dpsgd", _DPSGD, "defense")
    clip = settings.get("clip", CLIP) if spec.clip is None else spec.clip
    noise = settings.get("noise", NOISE) if spec.noise is None else spec.noise
    return DPSGDMechanism(clip, noise)


def neighbours_of(spec: GuaranteeSpec) -> Neighbours:
    """Return unit and relation of the promise.

    >>> str(neighbours_of(GuaranteeSpec(mechanism="svt")))
    'client, replaced'
    """
    own = claimed_by(spec)
    unit = spec.unit or (own.unit if isinstance(own, FilterMechanism) else RECORD)
    return Neighbours(unit, spec.relation)  # type: ignore[arg-type]
