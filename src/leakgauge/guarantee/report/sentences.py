"""The result of an audited guarantee in words."""

import math

from leakgauge.core.numbers import rounded_up
from leakgauge.defenses.claims import SERVED, Claim, sensitivity_for
from leakgauge.guarantee.filter import claim_of, is_filter
from leakgauge.guarantee.metrics import EPSILON, GAUSSIAN, GAUSSIAN_TEST, LAPLACE_TEST, TRAINING
from leakgauge.guarantee.report.audited import AuditedGuarantee
from leakgauge.guarantee.report.noise import along, assumed_of_noise
from leakgauge.guarantee.report.titles import EXACTLY, UPPER
from leakgauge.privacy.estimate import noise_for_epsilon
from leakgauge.privacy.promises import RECORD, GaussianRelease
from leakgauge.report.section import Level
from leakgauge.report.wording import count, short

VIOLATED, KEPT = "The promise does not hold", "Nothing against the promise"
EMPTY = "The promise protects nothing"

PROTECTS_NOTHING = 20.0
"""An epsilon above this one protects nothing: odds of one to a million become 485 to one."""

ADVISED = (8.0, 1.0)
"""Epsilons for which the report names the noise, if the promise is larger."""

CLAIM_REFUTED = "The claim does not hold"
NO_PRIVACY = "No differential privacy"

BIASED = (
    "The paper's estimate chooses the best threshold on the trials that it scores, so it is biased "
    "upward, and its interval does not account for that choice."
)


def headline(audited: AuditedGuarantee) -> tuple[Level, str]:
    """Return the level and the verdict in a few words."""
    if audited.why:
        return "strong", NO_PRIVACY
    if audited.violated:
        return "strong", VIOLATED
    if audited.refutes_claim:
        return "strong", CLAIM_REFUTED
    return ("strong", EMPTY) if protects_nothing(audited) else ("none", KEPT)


def sentences(audited: AuditedGuarantee) -> list[str]:
    """Return the result for non-specialist readers; the first text is the verdict."""
    found = [_outcome(audited)] if _is_idle(audited) else []
    return [verdict(audited), *found, _audit(audited), _measured(audited)]


def verdict(audited: AuditedGuarantee) -> str:
    """Return the promise, what it is worth, the noise of better promises, and the outcome.

    An audit that finds nothing against a promise that protects nothing changes no decision; its
    outcome then stands with the other sentences.
    """
    if audited.why:
        return _without_privacy(audited)
    parts = [_claimed(audited), _promised(audited), _shown(audited), _worth(audited)]
    parts += [more_noise(audited), "" if _is_idle(audited) else _outcome(audited)]
    return " ".join(filter(None, parts))


def _without_privacy(audited: AuditedGuarantee) -> str:
    name = str(audited.settings["mechanism"])
    server = name.partition(":")[0] in SERVED
    advice = " Name the noise multiplier of the server with `--server-noise`." if server else ""
    return (
        f"`{name}` gives no differential privacy: {audited.why}. No epsilon follows from it, for "
        f"any unit of privacy. {_shown(audited)}{advice}"
    )


def _is_idle(audited: AuditedGuarantee) -> bool:
    return protects_nothing(audited) and not audited.violated and not audited.why


def protects_nothing(audited: AuditedGuarantee) -> bool:
    """Return whether the promise is too large to protect anything."""
    return audited.training_promised > PROTECTS_NOTHING


def _worth(audited: AuditedGuarantee) -> str:
    if not protects_nothing(audited):
        return ""
    return (
        f"An epsilon above {PROTECTS_NOTHING:g} protects nothing, whatever an audit shows: "
        f"{'one release' if audited.releases == 1 else 'they'} may turn odds of one to a million "
        "into odds of 485 to one."
    )


def noise_for(audited: AuditedGuarantee, epsilon: float) -> float:
    """Return the noise that promises an epsilon of all releases at the clip of the audit.

    It has three digits, rounded up so that the promise holds.
    """
    clip, delta = float(audited.settings["clip"]), float(audited.settings["delta"])
    moved = GaussianRelease(clip, 1.0, 1).sensitivity(audited.near) * math.sqrt(audited.releases)
    return rounded_up(noise_for_epsilon(epsilon, moved, delta))


def more_noise(audited: AuditedGuarantee) -> str:
    """Return the noise for the epsilons of ``ADVISED`` below the promise; empty without any.

    For a filter that claims an epsilon it is the sensitivity that its formula needs.
    """
    if is_filter(str(audited.settings["mechanism"])):
        return _more_sensitivity(audited)
    enough = [
        f"`--noise {noise_for(audited, epsilon):g}` promises {epsilon:g}"
        for epsilon in ADVISED
        if epsilon < audited.training_promised
    ]
    return f"More noise promises more: at this clip, {' and '.join(enough)}." if enough else ""


def _more_sensitivity(audited: AuditedGuarantee) -> str:
    claim = claim_of(str(audited.settings["mechanism"]))
    if claim is None or audited.settings["clip"] is None:
        return ""
    if audited.promised <= 1.01 * claim.epsilon:
        return ""
    write = sensitivity_for(claim, float(audited.settings["clip"]), audited.near)
    return f"With `sensitivity={write:g}` the filter keeps its claim of {claim.epsilon:g}."


def other_filter(audited: AuditedGuarantee) -> str:
    """Return a filter that keeps the larger epsilon of ``ADVISED``; empty if advice is known.

    It is for a filter that gives no privacy, or whose noise is no Gaussian noise of one size.
    """
    if not audited.why and (audited.settings["clip"] is not None or not _is_refuted(audited)):
        return ""
    delta = float(audited.settings["delta"])
    write = sensitivity_for(
        Claim(ADVISED[0], delta), 1.0, audited.near, rounds=max(1, audited.releases)
    )
    return (
        f"`local-dp:clip=1,sensitivity={write:g},epsilon={ADVISED[0]:g},delta={delta:g}` keeps an "
        f"epsilon of {ADVISED[0]:g} ({audited.near})."
    )


def _is_refuted(audited: AuditedGuarantee) -> bool:
    return audited.violated or audited.refutes_claim or protects_nothing(audited)


def _outcome(audited: AuditedGuarantee) -> str:
    if audited.violated:
        return (
            f"{VIOLATED}: {_BY[audited.deciding]}, the releases mean an epsilon of at least "
            f"{short(audited.shown)}, more than is promised for this record.{_of_worst(audited)} A "
            "correct mechanism gives this verdict in at most "
            f"{_percent(1 - _confidence(audited))} of 100 audits; repeat with another --seed."
            f"{along(audited)}"
        )
    what = "the promise" if audited.claimed is None else "what follows from the noise"
    return (
        f"The audit found nothing against {what}. This is not a proof: another record may "
        f"show more, and {largest_words(audited, audited.deciding)}.{along(audited)}"
        f"{assumed_of_noise(audited)}"
    )


def _of_worst(audited: AuditedGuarantee) -> str:
    if audited.shown > audited.promised:
        return ""
    return (
        f" The promise for the worst one, {short(audited.promised)}, is not refuted: the noise may "
        "keep it, and is not the noise that the mechanism claims."
    )


_BY = {
    GAUSSIAN_TEST: "by the Gaussian test, which assumes Gaussian noise",
    LAPLACE_TEST: "by the Laplace test, which assumes Laplace noise",
    GAUSSIAN: "if the noise is Gaussian",
    EPSILON: "without any assumption",
}
"""How each deciding metric finds its lower end."""


def largest_words(audited: AuditedGuarantee, metric: str) -> str:
    """Return what the trials cannot refute, by a metric."""
    most = {EPSILON: "largest_showable_low", GAUSSIAN: "largest_showable_gaussian_low"}.get(metric)
    if most is None:
        return "a promise that is off by less than the interval is not refuted"
    return f"this many trials can refute no promise above {short(audited.theory[most])}"


def _confidence(audited: AuditedGuarantee) -> float:
    return audited.figures[audited.deciding].estimate.confidence


def _percent(share: float) -> str:
    return f"{100 * share:.3g}"


def _shown(audited: AuditedGuarantee) -> str:
    """Return what releases show, for a filter or for several releases; else empty."""
    if audited.releases == 1 and not is_filter(str(audited.settings["mechanism"])):
        return ""
    delta = 0.0 if audited.deciding == LAPLACE_TEST else audited.settings["delta"]
    against = ", which refutes the claim" if audited.refutes_claim else ""
    whom = f"{audited.near.unit}, replaced by another version" if not audited.why else ""
    said = (
        f"Its releases show at least {short(audited.shown)} at delta {delta:g} "
        f"({_percent(_confidence(audited))} % confidence, {_BY[audited.deciding]}"
        f"{f'; {whom}' if whom else ''}){against}."
    )
    return " ".join(filter(None, [said, _further(audited), _of_training(audited), _odd(audited)]))


def _further(audited: AuditedGuarantee) -> str:
    if audited.neighbours or audited.claimed is None or audited.shown <= audited.claimed:
        return ""
    return (
        "The two versions are further apart than neighbours of the promise, so they do not test "
        f"a claim for a {audited.near.unit} that is added."
    )


def _of_training(audited: AuditedGuarantee) -> str:
    if TRAINING not in audited.figures:
        return ""
    low = short(audited.figures[TRAINING].estimate.low)
    return f"Over {count(audited.releases)} releases that is at least {low}."


def _odd(audited: AuditedGuarantee) -> str:
    if not audited.odd:
        return ""
    return (
        "The scores are not those of the noise that it claims, so the test of this noise is left "
        "out."
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
    who = f"{_mechanism(str(settings['mechanism']))}{_of_gaussian(audited)}"
    return (
        f"{who} released the gradient of a {_canary(str(settings['canary']))} "
        f"{count(int(settings['trials']))} times, half with {name!r} = {own!r} and half with "
        f"{new}. {model}Epsilon measures how well an attacker can distinguish them: "
        "0 means not at all."
    )


def _measured(audited: AuditedGuarantee) -> str:
    estimate = audited.epsilon.estimate
    return (
        f"Measured without assumptions: epsilon is at least {short(estimate.low)} "
        f"({_percent(estimate.confidence)} % confidence; best guess {short(estimate.value)}; "
        f"delta {audited.settings['delta']:g}). {_limit(audited)}.{_turned(audited)}"
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
    says = "Promised" if audited.claimed is None else "From its noise follows"
    worst = _at_most(audited.promised).removeprefix("at most ")
    whom = "record" if audited.near.unit == RECORD else "update"
    several = ""
    if audited.releases > 1:
        training = _at_most(audited.theory["training"])
        several = f" Over {count(audited.releases)} releases it is {training} for the worst one."
    return (
        f"{says}: epsilon is {_at_most(audited.pair_promised)} for this {whom} and "
        f"{worst} for the worst one, at delta {audited.settings['delta']:g} "
        f"({audited.near}; {UPPER if 'pair_pure' in audited.theory else EXACTLY}).{several}"
        f"{_pure(audited)}{_served(audited)}"
    )


def _served(audited: AuditedGuarantee) -> str:
    if not audited.settings.get("server_noise"):
        return ""
    return " The promise is for what the server publishes: it has seen the update before its noise."


def _pure(audited: AuditedGuarantee) -> str:
    if "mechanism_pure" not in audited.theory:
        return ""
    least, most = (short(audited.theory[name]) for name in ("mechanism_least", "mechanism_pure"))
    return (
        f" At delta 0 it is at most {short(audited.theory['pair_pure'])} for this update and "
        f"{least} to {most} for the worst one."
    )


def _at_most(value: float) -> str:
    words = short(value)
    return words if words.startswith("above") else f"at most {words}"


def _claimed(audited: AuditedGuarantee) -> str:
    """Return what the filter claims; empty for another mechanism."""
    if audited.claimed is None:
        return ""
    delta = f" at delta {audited.claimed_delta:g}"
    return f"The filter claims epsilon {short(audited.claimed)}{delta}."


def _of_gaussian(audited: AuditedGuarantee) -> str:
    clip, noise = audited.settings["clip"], audited.settings["noise"]
    if clip is None or noise is None:
        return ""
    return f" (clip {clip:g}, noise {noise:g})"


def _mechanism(name: str) -> str:
    return {"dpsgd": "DP-SGD", "opacus": "A step of Opacus' optimizer"}.get(name, f"'{name}'")


def _canary(name: str) -> str:
    kind, _, domain = name.partition("-")
    return f"{kind} record (domain: {domain})" if domain else f"{kind} record"
