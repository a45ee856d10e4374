"""What an audit assumes of the noise of a mechanism of the user, and what a pilot found."""

from leakgauge.guarantee.filter import is_filter
from leakgauge.guarantee.metrics import COORDINATES, SHARED
from leakgauge.guarantee.report.audited import AuditedGuarantee
from leakgauge.guarantee.spec import DPSGD, PILOT


def assumed_of_noise(audited: AuditedGuarantee) -> str:
    """Return what is assumed of the noise of others' code; empty for mechanisms of leakgauge."""
    name = str(audited.settings["mechanism"])
    if name == DPSGD or is_filter(name):
        return ""
    if audited.direction:
        return (
            " Each release is read as one number. A pilot looked for coordinates with less noise "
            f"than others, and for noise that many share: of fewer than {PILOT} numbers, or of one "
            "for each row or column of a layer. Noise of more numbers, and noise that depends on "
            "the record, may go unseen."
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
