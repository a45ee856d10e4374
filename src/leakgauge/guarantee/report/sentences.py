"""The result of an audited guarantee in words."""

from leakgauge.guarantee.metrics import GAUSSIAN
from leakgauge.guarantee.report.audited import AuditedGuarantee
from leakgauge.report.section import Level
from leakgauge.report.wording import count, short

VIOLATED, KEPT = "The promise does not hold", "Nothing against the promise"

THEORY = {
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
    return ("strong", VIOLATED) if audited.violated else ("none", KEPT)


def sentences(audited: AuditedGuarantee) -> list[str]:
    """Return the result for non-specialist readers; the last sentence is the verdict."""
    return [_audit(audited), _measured(audited), _promised(audited), verdict(audited)]


def verdict(audited: AuditedGuarantee) -> str:
    """Return the verdict in one or two sentences."""
    low = audited.figures[GAUSSIAN].estimate.low
    if audited.violated:
        return (
            f"{VIOLATED}: if the noise is Gaussian, these errors mean an epsilon of at least "
            f"{short(low)}, more than is promised for this record. A correct mechanism gives "
            "this verdict in at most 5 of 100 audits; repeat with another --seed."
        )
    most = short(audited.theory["largest_showable_gaussian_low"])
    return (
        "The audit found nothing against the promise. This is not a proof: another record may "
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
    return (
        f"Promised: epsilon is at most {short(theory['pair_exact'])} for this record and "
        f"{short(theory['mechanism_exact'])} for the worst one (by the textbook formula, which is "
        f"proven up to 1 only: {short(theory['mechanism_classic'])})."
    )


def _mechanism(name: str) -> str:
    return {"dpsgd": "DP-SGD", "opacus": "A step of Opacus' optimizer"}.get(name, f"'{name}'")


def _canary(name: str) -> str:
    kind, _, domain = name.partition("-")
    return f"{kind} record (domain: {domain})" if domain else f"{kind} record"
