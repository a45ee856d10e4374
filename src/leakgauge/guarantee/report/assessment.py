"""The assessment of an audited guarantee for an audit card."""

from pathlib import Path

from leakgauge.guarantee.metrics import EPSILON
from leakgauge.guarantee.report.audited import AuditedGuarantee, audited_guarantee
from leakgauge.guarantee.report.sentences import headline, largest_words
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
        findings=[
            _finding(audited, name, leads=name == EPSILON)
            for name in dict.fromkeys([EPSILON, audited.deciding])
        ],
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
        no_smallest=f"a lower bound has none; {largest_words(audited, metric)}",
        open_end=audited.upper_end(metric) == float("inf"),
    )


def _promises(audited: AuditedGuarantee) -> list[Promised]:
    if audited.why:
        return []
    defense = audited.epsilon.defense
    delta = float(audited.settings["delta"])
    mechanism, theory = str(audited.settings["mechanism"]), audited.theory
    event = f"one release of one record's gradient ({mechanism})"
    found = [
        Promised(
            defense,
            f"{event}; this record, exact",
            audited.pair_promised,
            delta,
            RELATION,
            measured=audited.figures[audited.deciding].estimate,
            outcome="refuted" if audited.violated else "not refuted",
            open_end=audited.upper_end(audited.deciding) == float("inf"),
        ),
        Promised(
            defense,
            f"{event}; the worst neighbours, exact",
            audited.promised,
            delta,
            str(audited.near),
        ),
    ]
    if "training" in theory:
        several = f"{audited.releases} releases with fresh noise ({mechanism})"
        found.append(
            Promised(
                defense,
                f"{several}; the worst neighbours",
                theory["training"],
                delta,
                str(audited.near),
            )
        )
    if "mechanism_classic" in theory:
        found.append(
            Promised(
                defense,
                f"{event}; textbook formula at the clip",
                theory["mechanism_classic"],
                delta,
                "one record added or removed",
                note="proven for an epsilon of at most 1 only",
            )
        )
    return found


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
