"""What a tracker of experiments gets of an audit: plain values by flat names, and the page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from leakgauge.core.checks import require
from leakgauge.evidence.headlines import headlines
from leakgauge.report.section import Section
from leakgauge.report.wording import plain
from leakgauge.results.measurements import REPORT_FILE
from leakgauge.runs.audit import AuditRun
from leakgauge.runs.page import render_audit
from leakgauge.runs.question import Question


@dataclass(frozen=True)
class Logged:
    """An audit as a tracker keeps it.

    Attributes:
        figures: the leading figures, such as ``property.auroc`` and ``property.auroc.low``.
        verdicts: verdicts, such as ``property.verdict``; and what was not completed.
        settings: settings by question and name; data and version.
        page: ``report.html``; empty if it is withheld.
    """

    figures: Mapping[str, float]
    verdicts: Mapping[str, str]
    settings: Mapping[str, str]
    page: str

    @property
    def what(self) -> str:
        """What is kept, in words, and what is withheld."""
        page = REPORT_FILE
        if not self.page:
            page = (
                f"no {REPORT_FILE}, as it shows private records (Result.log_to sends it with "
                "private_records=True)"
            )
        return f"{len(self.figures)} figures, {len(self.verdicts)} verdicts and {page}"


def logged(
    audit: AuditRun,
    sections: Sequence[Section],
    questions: Mapping[str, Question],
    *,
    private_records: bool = False,
) -> Logged:
    """Return what a tracker gets of an audit.

    Args:
        audit: a finished audit.
        sections: sections of its report.
        questions: questions by name.
        private_records: whether a page that shows private records is included.

    Raises:
        InputError: the package of a question is not installed or does not say what leads, or two
            figures have one flat name.
    """
    found = headlines(audit, questions)
    names = [one.named(one.figure.metric) for one in found]
    double = next((name for name in names if names.count(name) > 1), "")
    require(not double, f"two figures have the flat name {double!r}; rename a secret or a defense")
    withheld = any(one.private for one in sections) and not private_records
    return Logged(
        figures={name: value for one in found for name, value in one.values.items()},
        verdicts={
            **{f"{row.ask}.verdict": row.verdict for one in sections for row in one.rows[:1]},
            **{one.named("verdict"): one.finding.verdict for one in found},
            **({"not_completed": "; ".join(audit.missing)} if audit.missing else {}),
        },
        settings=_settings(audit),
        page="" if withheld else render_audit(audit, sections),
    )


def _settings(audit: AuditRun) -> dict[str, str]:
    described = audit.description
    facts = {f"data.{name}": str(value) for name, value in described.data.items()}
    given = {
        f"{key}.{name}": plain(value)
        for key, settings in described.settings.items()
        for name, value in settings.items()
        if plain(value) != plain(None)
    }
    return {**facts, **given, "leakgauge": described.versions.get("leakgauge", "")}
