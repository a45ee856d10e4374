"""Titles of the epsilons that are known without a measurement."""

from collections.abc import Mapping

from leakgauge.guarantee.metrics import CLAIMED
from leakgauge.guarantee.report.audited import AuditedGuarantee
from leakgauge.report.wording import count

EXACTLY, UPPER = "exact", "an upper bound"


def theory_titles(audited: AuditedGuarantee) -> Mapping[str, str]:
    """Return the titles by name, in the order of the table."""
    near = audited.near
    how = UPPER if "pair_pure" in audited.theory else EXACTLY
    several = f"{count(audited.releases)} releases"
    return {
        CLAIMED: "Claimed by the filter's own parameters",
        "pair_exact": f"Promised for this record ({how})",
        "mechanism_exact": f"Promised for the worst neighbours ({how}; {near})",
        "training": f"Promised for the worst neighbours, {several} ({how}; {near})",
        "pair_pure": "The same for this record at delta 0",
        "mechanism_pure": f"The same for the worst neighbours at delta 0 ({near})",
        "mechanism_least": f"No less for the worst neighbours at delta 0 ({near})",
        "mechanism_exact_at_clip": "Exact, at the clip",
        "mechanism_classic": "Textbook formula, at the clip (proven up to 1 only)",
        "per_attribute_classic": "Textbook formula over the number of attributes (the paper's "
        "yardstick; bounds nothing)",
        "largest_showable": "Largest that this number of trials can show without assumptions",
    }
