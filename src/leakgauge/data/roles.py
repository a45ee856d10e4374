"""Combine the roles from the user with the default roles of a named dataset."""

from collections.abc import Iterable, Mapping, Sequence

from leakgauge.core.checks import InputError, nearest
from leakgauge.data.table import Roles


def resolve_roles(
    defaults: Roles | None,
    *,
    label: str | None = None,
    secret: str | None = None,
    group: str | None = None,
    drop: Sequence[str] = (),
    bins: Mapping[str, int] | None = None,
    numeric: bool = False,
    secret_needed: bool = True,
    columns: Iterable[str] = (),
) -> Roles:
    """Return the user's roles, completed by the default roles of the dataset.

    A column that the defaults drop stays if the user gives it a role.

    Args:
        defaults: roles of a named dataset; None for any other data.
        label: the column that the model predicts.
        secret: the column that an adversary wants to know.
        group: the column that names the user of each row.
        drop: columns to leave out, besides those of the defaults.
        bins: number of ranges into which to cut the label or the secret.
        numeric: whether the label stays a number; default bins then do not apply to it.
        secret_needed: whether to refuse roles without a secret.
        columns: all columns of the data, for messages.

    Raises:
        InputError: neither the user nor the defaults name a label, or a secret that is needed.

    >>> defaults = Roles("income", ("sex",), drop=("race",))
    >>> resolve_roles(defaults, secret="race")
    Roles(label='income', secrets=('race',), group=None, drop=(), bins={}, merge_rare=0, \
numeric=False)
    """
    names = list(columns)
    hint = nearest("", names) if names else ""
    label = label or (defaults.label if defaults else None)
    if label is None:
        raise InputError(f"--label is missing; name the column that the model predicts{hint}")
    if secret is None and defaults is not None:
        secret = next((name for name in defaults.secrets if name != label), None)
    if secret is None and secret_needed:
        raise InputError(f"--secret is missing; name the column to protect{hint}")
    group = group or (defaults.group if defaults else None)
    used = (label, secret, group)
    dropped = [name for name in (defaults.drop if defaults else ()) if name not in used]
    coded = (secret,) if numeric else (label, secret)
    cut = {name: n for name, n in (defaults.bins if defaults else {}).items() if name in coded}
    return Roles(
        label=label,
        secrets=() if secret is None else (secret,),
        group=group,
        drop=tuple(dict.fromkeys([*dropped, *drop])),
        bins={**cut, **(bins or {})},
        numeric=numeric,
    )
