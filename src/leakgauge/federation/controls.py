"""The controls of kept updates: none exist."""

from leakgauge.data.source import Source
from leakgauge.federation.spec import FederationSpec
from leakgauge.runs.assessment import Controls

REASON = "kept updates are what clients sent; no data of theirs can be changed for a control"


def controls(spec: FederationSpec, source: Source) -> Controls:
    """Return the reason why no control exists, for both kinds."""
    return Controls(REASON, REASON)
