"""The table of an audit, with the attribute among its features."""

from collections.abc import Mapping
from dataclasses import replace

from leakgauge.core.checks import nearest, require
from leakgauge.data.source import Source
from leakgauge.data.table import Roles, Table, make_table


def attribute_table(
    source: Source,
    attribute: str,
    *,
    label: str,
    group: str | None,
    drop: tuple[str, ...],
    bins: Mapping[str, int],
    drop_missing: bool,
) -> Table:
    """Return the table of the data, with the attribute among its features.

    Args:
        source: a table.
        attribute: name of a column.
        label: the column that the model predicts.
        group: the column that names the user of each row.
        drop: columns to leave out.
        bins: number of ranges for a numeric label; ranges of the attribute are ignored with a note.
        drop_missing: whether to leave out rows without label.

    Raises:
        InputError: the attribute is not a feature, or the table cannot be used.
    """
    cut = {column: ranges for column, ranges in bins.items() if column != attribute}
    roles = Roles(label, (), group, drop, cut)
    for role, names in (("label", [label]), ("group", [group]), ("drop", drop)):
        require(
            attribute not in names,
            f"--attribute {attribute!r} cannot be audited, as --{role} names it, too; name "
            "another column",
        )
    table = make_table(source.frame, roles, drop_missing=drop_missing)
    _require_feature(table, attribute)
    if attribute not in bins:
        return table
    note = f"column {attribute!r} is not cut into ranges: this audit tells two of its values apart"
    return replace(table, notes=(*table.notes, note))


def _require_feature(table: Table, name: str) -> None:
    # Only the notes say why a column is not a feature.
    why = "".join(f"; {note}" for note in table.notes if note.startswith(f"column {name!r} "))
    hint = why or nearest(name, map(str, table.features))
    require(name in table.features, f"--attribute {name!r} is none of the features{hint}")
