"""Checks of a guarantee's settings, and the mechanism that they claim."""

from leakgauge.core.checks import require, require_choice
from leakgauge.core.parsing import read
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
    if ":" not in spec.mechanism:
        require_choice(spec.mechanism, "--mechanism", MECHANISMS)
    build_mechanism(spec.mechanism, claimed_by(spec))
    largest_showable(spec.trials, spec.delta)


def promised_by(defenses: tuple[str, ...]) -> str | None:
    """Return the first defense that promises differential privacy, or None.

    >>> promised_by(("none", "sign", "dpsgd:clip=1,noise=0.5"))
    'dpsgd:clip=1,noise=0.5'
    """
    return next((text for text in defenses if text.partition(":")[0] == "dpsgd"), None)


def claimed_by(spec: GuaranteeSpec) -> DPSGDMechanism:
    """Return the DP-SGD that the mechanism claims to be.

    Clip and noise are those of the settings, else those of a ``dpsgd`` defense, else 2 and 0.1.

    Raises:
        InputError: clip or noise is not above 0.

    >>> claimed_by(GuaranteeSpec(defense=("none", "dpsgd:clip=1,noise=0.5")))
    DPSGDMechanism(clip=1.0, noise=0.5)
    """
    _, settings = read(promised_by(spec.defense) or "dpsgd", _DPSGD, "defense")
    clip = settings.get("clip", CLIP) if spec.clip is None else spec.clip
    noise = settings.get("noise", NOISE) if spec.noise is None else spec.noise
    return DPSGDMechanism(clip, noise)
