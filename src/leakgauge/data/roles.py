"""The roles of columns, where a user names some and a known dataset has the others."""

from collections.abc import Iterable, Mapping, Sequence

from leakgauge.core.checks import InputError, nearest
from leakgauge.data.table import Roles


def resolve_roles(
    usual: Roles | None,
    *,
    label: str | None = None,
    secret: str | None = None,
    group: str | None = None,
    drop: Sequence[str] = (),
    bins: Mapping[str, int] | None = None,
    secret_needed: bool = True,
    columns: Iterable[str] = (),
) -> Roles:
    """What the user says, and for the rest what is usual for the dataset.

    Columns that are usually dropped stay where the user gives them a role.

    Args:
        usual: of a named dataset; None for any other.
        label: the column that the model predicts; secret, group, drop, bins: as in ``Roles``.
        secret_needed: whether a secret must be named, or usual.
        columns: all there are, for the message where one must be named.

    Raises:
        InputError: nobody names a label, or a secret that is needed.

    >>> usual = Roles("income", ("sex",), drop=("race",))
    >>> resolve_roles(usual, secret="race")
    Roles(label='income', secrets=('race',), group=None, drop=(), bins={})
    """
    there = list(columns)
    hint = nearest("", there) if there else ""
    label = label or (usual.label if usual else None)
    if label is None:
        raise InputError(f"--label is missing; name the column that the model predicts{hint}")
    if secret is None and usual is not None:
        secret = next((name for name in usual.secrets if name != label), None)
    if secret is None and secret_needed:
        raise InputError(f"--secret is missing; name the column that nobody should learn{hint}")
    group = group or (usual.group if usual else None)
    used = (label, secret, group)
    dropped = [name for name in (usual.drop if usual else ()) if name not in used]
    cut = {name: n for name, n in (usual.bins if usual else {}).items() if name in used[:2]}
    return Roles(
        label=label,
        secrets=() if secret is None else (secret,),
        group=group,
        drop=tuple(dict.fromkeys([*dropped, *drop])),
        bins={**cut, **(bins or {})},
    )
