"""Kept updates as plain values for ``--json``, and on an audit card."""

from pathlib import Path
from typing import Any

from leakgauge.federation.metrics import AUROC_OVER, LOSS
from leakgauge.federation.report.wording import UpdateTable, tables, verdict
from leakgauge.federation.run.figures import EACH_ATTACK
from leakgauge.federation.run.preparing import FederationPrepared
from leakgauge.federation.spec import MEMBERSHIP, PROPERTY, RECONSTRUCTION, plain_word
from leakgauge.inversion.words import ASSUMED
from leakgauge.report.facts import plain_figure
from leakgauge.report.section import LEVELS
from leakgauge.results.scores import smallest_detectable
from leakgauge.runs.assessment import Assessment, Controls, Finding, Threat
from leakgauge.runs.question import Answer

LIMITS = (
    "The figures are about the rounds and clients that were kept, and about these attacks.",
    "A record that was not rebuilt here may be rebuilt by a stronger attack, or from more updates.",
    "The membership attacker knows some of a client's records; one that knows none may do worse.",
    "The property attacker simulates clients with records of a single value.",
)

_NO_CONTROL = "kept updates are what clients sent; no data of theirs can be changed for a control"

_NIST = {
    RECONSTRUCTION: "NISTAML.032 reconstruction",
    MEMBERSHIP: "NISTAML.033 membership inference",
    PROPERTY: "NISTAML.034 property inference",
}
_EDPB = {
    RECONSTRUCTION: "reconstruction",
    MEMBERSHIP: "membership inference",
    PROPERTY: "attribute inference",
}
_DOES = {
    RECONSTRUCTION: "It searches for records with an update like the one that was sent.",
    MEMBERSHIP: "It compares the model's outputs on records before and after a round.",
    PROPERTY: "It simulates clients on its own records, and learns to distinguish their updates.",
}


def assessment(answer: Answer, folder: Path) -> Assessment:
    """Return the threat, and the mean figure of each question."""
    found = [(table, verdict(table)) for table in tables(answer.measurements)]
    scored = [(table, one) for table, one in found if table.metric != LOSS]
    lead = max(scored, key=lambda one: (LEVELS[one[1].level], one[1].strength), default=None)
    findings = []
    for table, one in scored:
        figure, leads = table.lead, lead is not None and lead[0] is table
        if table.ask == RECONSTRUCTION:
            said = "the level compares the figure with a guess that sees no update"
            findings.append(Finding(figure, one.words, one.level, leads, no_smallest=said))
        else:
            least = smallest_detectable(figure.estimate, figure.chance)
            findings.append(Finding(figure, one.words, one.level, leads, least))
    asks = [table.ask for table, _ in found]
    return Assessment(
        threat=Threat(
            goal="to infer clients' records from the updates that they sent",
            knows=[
                "The kept updates, the model, and what the server sent before.",
                "The clients' learning rate, batch size and passes, as configured.",
                "Public records of the same kind.",
            ],
            does=[_DOES[ask] for ask in asks],
            lacks=["Which record was in which batch."],
            nist=[_NIST[ask] for ask in asks],
            edpb=[_EDPB[ask] for ask in asks],
        ),
        findings=findings,
        no_worst="the report has the figures of each client and round",
        limits=LIMITS,
    )


def as_json(answer: Answer, folder: Path) -> dict[str, Any]:
    """Return each question's verdict, mean and figures by round and client."""
    found = {}
    for table in tables(answer.measurements):
        one = verdict(table)
        found[plain_word(table.ask)] = {
            "verdict": one.words,
            "level": one.level,
            "metric": table.metric,
            **({"assumed": said} if (said := table.mean.details.get(ASSUMED)) else {}),
            **plain_figure(table.mean),
            **{name: plain_figure(each) for name, each in table.extra.items()},
            **_over_rounds(table),
            "updates": [
                {"round": number, "client": client, **plain_figure(cell)}
                for (number, client), cell in table.cells.items()
            ],
        }
    return {
        **found,
        "notes": list(answer.run.notes),
        "warnings": list(answer.run.warnings),
        "missing": list(answer.missing),
    }


def _over_rounds(table: UpdateTable) -> dict[str, Any]:
    """Return the AUROC of each client over all rounds, and that of each attack."""
    if not table.over_rounds:
        return {}
    each = table.extra[AUROC_OVER].details.get(EACH_ATTACK, "")
    clients = [{"client": who, **plain_figure(one)} for who, one in table.over_rounds.items()]
    return {"over_rounds": clients, "over_rounds_by_attack": each}


def controls(prepared: FederationPrepared) -> Controls:
    """Return the reason why no control exists, for both kinds."""
    return Controls(_NO_CONTROL, _NO_CONTROL)
