"""Make the table of the reference audits that the package holds."""

from leakgauge.runs.reference import reference_audits
from markdown_text import table

CAUSES = "known causes"


def reference_table() -> str:
    """Return a line for each reference audit, with the leading figure of each question."""
    audits = reference_audits()
    asks = list(dict.fromkeys((one.ask, one.metric) for each in audits for one in each.figures))
    head = ("table", "records", "features", "label", "secret", *[f"{a}, {m}" for a, m in asks])
    rows = []
    for one in audits:
        values = {(each.ask, each.metric): f"{each.value:.3f}" for each in one.figures}
        causes = dict.fromkeys(name for each in one.figures for name in each.causes)
        rows.append(
            (
                one.data.removesuffix(".csv"),
                f"{one.records:,}",
                str(one.columns),
                one.label,
                one.secret,
                *(values.get(key, "") for key in asks),
                ", ".join(causes),
            )
        )
    return table((*head, CAUSES), rows)
