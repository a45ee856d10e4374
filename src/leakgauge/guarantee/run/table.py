"""The table of an audit, with the attribute among its features."""

from dataclasses import replace

from leakgauge.core.checks import nearest, require
from leakgauge.data.source import Source
from leakgauge.data.table import Roles, Table, make_table
from leakgauge.guarantee.spec import GuaranteeSpec


def attribute_table(source: Source, spec: GuaranteeSpec) -> Table:
    """Return the table of the data, with the attribute among its features.

    Args:
        source: a table.
        spec: with label and attribute filled in.

    Raises:
        InputError: the attribute is no feature, or the table cannot be used.
    """
    name = str(spec.attribute)
    bins = {column: ranges for column, ranges in spec.bins.items() if column != name}
    roles = Roles(str(spec.label), (), spec.group, spec.drop, bins)
    for role, names in (("label", [roles.label]), ("group", [roles.group]), ("drop", roles.drop)):
        require(
            name not in names,
            f"--attribute {name!r} cannot be audited, as --{role} names it, too; name another "
            "column",
        )
    table = make_table(source.frame, roles, drop_missing=spec.drop_missing)
    _require_feature(table, name)
    if name not in spec.bins:
        return table
    note = f"column {name!r} is not cut into ranges: this audit tells two of its values apart"
    return replace(table, notes=(*table.notes, note))


def _require_feature(table: Table, name: str) -> None:
    # Only the notes say why a column is no feature.
    why = "".join(f"; {note}" for note in table.notes if note.startswith(f"column {name!r} "))
    hint = why or nearest(name, map(str, table.features))
    require(name in table.features, f"--attribute {name!r} is none of the features{hint}")
