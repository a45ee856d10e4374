"""The assessment of an audited guarantee for an audit card."""

from pathlib import Path

from leakgauge.guarantee.metrics import EPSILON, GAUSSIAN
from leakgauge.guarantee.report.audited import AuditedGuarantee, audited_guarantee
from leakgauge.guarantee.report.sentences import headline
from leakgauge.runs.assessment import Assessment, Finding, Promised, Threat
from leakgauge.runs.question import Answer

RELATION = "one attribute of one record replaced by another value"
LIMITS = (
    "The measured epsilon is a lower bound, on one record and one release. It proves no promise.",
    "Another record, another release or a whole training may show more.",
    "This number of trials can refute no claim above the largest epsilon that it can show.",
)


def assessment(answer: Answer, folder: Path) -> Assessment:
    """Return threat, figures and promises of an answer.

    Raises:
        InputError: settings or measurements are missing, as in a damaged folder.
    """
    audited = audited_guarantee(answer.run.settings, answer.measurements)
    return Assessment(
        threat=_threat(audited),
        findings=[_finding(audited, EPSILON, leads=True), _finding(audited, GAUSSIAN, leads=False)],
        worst=(),
        no_worst="the audit is about one record, which stands for the worst one: "
        f"{audited.settings['canary']}",
        promises=_promises(audited),
        limits=LIMITS,
    )


def _finding(audited: AuditedGuarantee, metric: str, *, leads: bool) -> Finding:
    level, words = headline(audited)
    return Finding(
        audited.figures[metric],
        words,
        level,
        leads,
        no_smallest="a lower bound has none; the largest epsilon that the trials can show is "
        f"{audited.theory[_LARGEST[metric]]:.3g}",
        open_end=audited.upper_end(metric) == float("inf"),
    )


_LARGEST = {EPSILON: "largest_showable_low", GAUSSIAN: "largest_showable_gaussian_low"}


def _promises(audited: AuditedGuarantee) -> list[Promised]:
    defense = audited.epsilon.defense
    delta = float(audited.settings["delta"])
    mechanism, theory = str(audited.settings["mechanism"]), audited.theory
    event = f"one release of one record's gradient ({mechanism})"
    return [
        Promised(
            defense,
            f"{event}; this record, exact",
            theory["pair_exact"],
            delta,
            RELATION,
            measured=audited.figures[GAUSSIAN].estimate,
            outcome="refuted" if audited.violated else "not refuted",
            open_end=audited.upper_end(GAUSSIAN) == float("inf"),
        ),
        Promised(
            defense,
            f"{event}; the worst record, exact",
            theory["mechanism_exact"],
            delta,
            RELATION,
            note="it moves the sum by up to twice the clip",
        ),
        Promised(
            defense,
            f"{event}; textbook formula at the clip",
            theory["mechanism_classic"],
            delta,
            "one record added or removed",
            note="proven for an epsilon of at most 1 only",
        ),
    ]


def _threat(audited: AuditedGuarantee) -> Threat:
    count, name = len(audited.values), audited.settings["attribute"]
    return Threat(
        goal=f"to infer which of {count} values the attribute {name!r} of one record has",
        knows=[
            "The record in all its versions, the model, and how the mechanism clips and adds noise."
        ],
        does=[
            f"It scores {audited.settings['trials']} releases with the statistic "
            f"{audited.settings['statistic']}."
        ],
        lacks=["Which version is behind each release, and the noise."],
        nist=["NISTAML.033 membership inference"],
        edpb=["attribute inference"],
    )
