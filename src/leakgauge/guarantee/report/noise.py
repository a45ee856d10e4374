"""What an audit assumes of the noise of a mechanism of the user, and what a pilot found."""

from leakgauge.guarantee.filter import is_filter
from leakgauge.guarantee.metrics import COORDINATES, SHARED
from leakgauge.guarantee.report.audited import AuditedGuarantee
from leakgauge.guarantee.spec import MECHANISMS


def assumed_of_noise(audited: AuditedGuarantee) -> str:
    """Return what is assumed of a mechanism of a user's own; empty for those that are known."""
    name = str(audited.settings["mechanism"])
    if name in MECHANISMS or is_filter(name):
        return ""
    if audited.direction:
        return (
            " Each release is read as one number. A pilot looked for coordinates with less noise "
            "than others, and for noise that several share; what it cannot show, such as noise "
            "that depends on the record, goes unseen."
        )
    return (
        " Each release is read as one number, which assumes independent noise in every coordinate: "
        "a coordinate without noise, or noise that several share, goes unseen."
    )


def along(audited: AuditedGuarantee) -> str:
    """Return where the noise is small, if the releases are read there; else empty."""
    found = {
        COORDINATES: "Some coordinates have less noise than others",
        SHARED: "Coordinates share noise, which their differences do not have",
    }.get(audited.direction)
    return "" if found is None else f" {found}, and the releases are read there."
