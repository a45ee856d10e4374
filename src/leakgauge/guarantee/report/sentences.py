"""The result of an audited guarantee in words."""

import math

from leakgauge.defenses.claims import sensitivity_for
from leakgauge.guarantee.filter import claim_of, is_filter
from leakgauge.guarantee.metrics import CLAIMED, GAUSSIAN
from leakgauge.guarantee.report.audited import AuditedGuarantee
from leakgauge.privacy.estimate import noise_for_epsilon
from leakgauge.privacy.promises import Neighbours
from leakgauge.report.section import Level
from leakgauge.report.wording import count, short

VIOLATED, KEPT = "The promise does not hold", "Nothing against the promise"
EMPTY = "The promise protects nothing"

PROTECTS_NOTHING = 20.0
"""An epsilon above this one protects nothing: odds of one to a million become 485 to one."""

ADVISED = (8.0, 1.0)
"""Epsilons for which the report names the noise, if the promise is larger."""

CLAIM_REFUTED = "The claim does not hold"

THEORY = {
    CLAIMED: "Claimed by the filter's own parameters",
    "pair_exact": "Promised for this record (exact)",
    "mechanism_exact": "Promised for the worst record (exact, at twice the clip)",
    "mechanism_exact_at_clip": "Exact, at the clip",
    "mechanism_classic": "Textbook formula, at the clip (proven up to 1 only)",
    "per_attribute_classic": "Textbook formula over the number of attributes (the paper's "
    "yardstick; bounds nothing)",
    "largest_showable": "Largest that this number of trials can show",
}
"""Titles of the epsilons that are known without a measurement, in the order of the table."""

BIASED = (
    "The paper's estimate chooses the best threshold on the trials that it scores, so it is biased "
    "upward, and its interval does not account for that choice."
)


def headline(audited: AuditedGuarantee) -> tuple[Level, str]:
    """Return the level and the verdict in a few words."""
    if audited.refutes_claim and not audited.violated:
        return "strong", CLAIM_REFUTED
    return verdict_words(audited.theory["mechanism_exact"], violated=audited.violated)


def verdict_words(promised: float, *, violated: bool) -> tuple[Level, str]:
    """Return the level and the verdict in a few words, from what is promised for any record."""
    if violated:
        return "strong", VIOLATED
    return ("strong", EMPTY) if promised > PROTECTS_NOTHING else ("none", KEPT)


def sentences(audited: AuditedGuarantee) -> list[str]:
    """Return the result for non-specialist readers; the first text is the verdict."""
    found = [_outcome(audited)] if _is_idle(audited) else []
    return [verdict(audited), *found, _audit(audited), _measured(audited)]


def verdict(audited: AuditedGuarantee) -> str:
    """Return the promise, what it is worth, the noise of better promises, and the outcome.

    An audit that finds nothing against a promise that protects nothing changes no decision; its
    outcome then stands with the other sentences.
    """
    parts = [_promised(audited), _worth(audited), more_noise(audited)]
    return " ".join(filter(None, [*parts, "" if _is_idle(audited) else _outcome(audited)]))


def _is_idle(audited: AuditedGuarantee) -> bool:
    return protects_nothing(audited) and not audited.violated


def protects_nothing(audited: AuditedGuarantee) -> bool:
    """Return whether the promise is too large to protect anything."""
    return audited.theory["mechanism_exact"] > PROTECTS_NOTHING


def _worth(audited: AuditedGuarantee) -> str:
    if not protects_nothing(audited):
        return ""
    return (
        f"An epsilon above {PROTECTS_NOTHING:g} protects nothing, whatever an audit shows: one "
        "release may turn odds of one to a million into odds of 485 to one."
    )


def noise_for(audited: AuditedGuarantee, epsilon: float) -> float:
    """Return the noise that promises an epsilon at the clip of the audit.

    It has three digits, rounded up so that the promise holds.
    """
    clip, delta = float(audited.settings["clip"]), float(audited.settings["delta"])
    exact = noise_for_epsilon(epsilon, 2 * clip, delta)
    unit = 10.0 ** (math.floor(math.log10(exact)) - 2)
    return float(f"{math.ceil(exact / unit) * unit:.3g}")


def more_noise(audited: AuditedGuarantee) -> str:
    """Return the noise for the epsilons of ``ADVISED`` below the promise; empty without any.

    For a filter that claims an epsilon it is the sensitivity that its formula needs.
    """
    if is_filter(str(audited.settings["mechanism"])):
        return _more_sensitivity(audited)
    enough = [
        f"`--noise {noise_for(audited, epsilon):g}` promises {epsilon:g}"
        for epsilon in ADVISED
        if epsilon < audited.theory["mechanism_exact"]
    ]
    return f"More noise promises more: at this clip, {' and '.join(enough)}." if enough else ""


def _more_sensitivity(audited: AuditedGuarantee) -> str:
    claim = claim_of(str(audited.settings["mechanism"]))
    if claim is None or audited.theory["mechanism_exact"] <= 1.01 * claim.epsilon:
        return ""
    write = sensitivity_for(claim, float(audited.settings["clip"]), Neighbours())
    return f"With `sensitivity={write:g}` the filter keeps its claim of {claim.epsilon:g}."


def _outcome(audited: AuditedGuarantee) -> str:
    low = audited.figures[GAUSSIAN].estimate.low
    if audited.violated:
        return (
            f"{VIOLATED}: if the noise is Gaussian, these errors mean an epsilon of at least "
            f"{short(low)}, more than is promised for this record. A correct mechanism gives "
            "this verdict in at most 5 of 100 audits; repeat with another --seed."
        )
    most = short(audited.theory["largest_showable_gaussian_low"])
    what = "the promise" if audited.claimed is None else "what follows from the noise"
    return (
        f"The audit found nothing against {what}. This is not a proof: another record may "
        f"show more, and this many trials can refute no promise above {most}."
    )


def _audit(audited: AuditedGuarantee) -> str:
    settings, (own, *others) = audited.settings, audited.values
    name = settings["attribute"]
    new = f"{name!r} = {others[0]!r}"
    if len(others) > 1:
        new = f"one of its {len(others)} other values, drawn anew for each release"
    rounds = settings.get("rounds", 0)
    epochs = "an epoch" if rounds == 1 else f"{rounds} epochs"
    model = f"The model is that after {epochs} of DP-SGD on the records. " if rounds else ""
    return (
        f"{_mechanism(str(settings['mechanism']))} (clip {settings['clip']:g}, noise "
        f"{settings['noise']:g}) released the gradient of a {_canary(str(settings['canary']))} "
        f"{count(int(settings['trials']))} times, half with {name!r} = {own!r} and half with "
        f"{new}. {model}Epsilon measures how well an attacker can distinguish them: "
        "0 means not at all."
    )


def _measured(audited: AuditedGuarantee) -> str:
    estimate = audited.epsilon.estimate
    return (
        f"Measured: epsilon is at least {short(estimate.low)} (95 % confidence; best guess "
        f"{short(estimate.value)}; delta {audited.settings['delta']:g}). {_limit(audited)}."
        f"{_turned(audited)}"
    )


def _turned(audited: AuditedGuarantee) -> str:
    if "turned" not in audited.epsilon.details:
        return ""
    return (
        " The scores are turned round: they are smaller for another value, which reveals it as "
        "well. The mechanism may release the gradient with the wrong sign."
    )


def _limit(audited: AuditedGuarantee) -> str:
    most = short(audited.theory["largest_showable_low"])
    if not audited.saturated:
        return f"The trials are not saturated: without an error they would show {most}"
    trials = count(int(audited.settings["trials"]))
    return (
        f"Not one trial went wrong, so the number of trials is the limit: {trials} cannot show "
        f"more than {most}, whatever leaks; more --trials can"
    )


def _promised(audited: AuditedGuarantee) -> str:
    theory = audited.theory
    says = "Promised" if audited.claimed is None else f"{_claimed(audited)}From its noise follows"
    worst = _at_most(theory["mechanism_exact"]).removeprefix("at most ")
    return (
        f"{says}: epsilon is {_at_most(theory['pair_exact'])} for this record and "
        f"{worst} for the worst one, at delta "
        f"{audited.settings['delta']:g}."
    )


def _at_most(value: float) -> str:
    words = short(value)
    return words if words.startswith("above") else f"at most {words}"


def _claimed(audited: AuditedGuarantee) -> str:
    """Return what the filter claims beside what its releases show; empty for another mechanism."""
    if audited.claimed is None:
        return ""
    low = short(audited.figures[GAUSSIAN].estimate.low)
    against = ", which refutes the claim" if audited.refutes_claim else ""
    return (
        f"The filter claims epsilon {short(audited.claimed)}. Its releases show at least {low}"
        f"{against}. "
    )


def _mechanism(name: str) -> str:
    return {"dpsgd": "DP-SGD", "opacus": "A step of Opacus' optimizer"}.get(name, f"'{name}'")


def _canary(name: str) -> str:
    kind, _, domain = name.partition("-")
    return f"{kind} record (domain: {domain})" if domain else f"{kind} record"
