"""One value of a secret against all others: the property whose share is inferred."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from leakgauge.core.checks import nearest, require
from leakgauge.core.types import Dataset


def one_against_rest(data: Dataset, secret: str, value: str | None = None) -> Dataset:
    """Return the records with a secret of two values: all others, then the one that is asked about.

    Li et al. say neither which value the share is of, nor what they do where a secret has more
    than two (UTKFace's ethnicity, the sex in Health). Of two values the default is the second; of
    more, the most frequent one, against all others together.

    Args:
        data: the records.
        secret: the name of the secret.
        value: the value in words; by default as said.

    Raises:
        InputError: the secret has no such value, or only one.

    References:
        Li et al., CCS 2024, sections 3.2 and 4.1 (distributional inference).

    >>> x, codes = torch.zeros(5, 2), torch.tensor([0, 2, 1, 2, 2])
    >>> one_against_rest(Dataset(x, codes, {"s": codes}), "s").secrets["s"].tolist()
    [0, 1, 0, 1, 1]
    """
    codes = data.secrets[secret]
    names = data.schema.secrets[secret] if data.schema else ()
    chosen = code_of(codes, secret, names, value)
    schema = data.schema
    if schema is not None:
        others = [name for code, name in enumerate(names) if code != chosen]
        rest = others[0] if len(others) == 1 else f"not {names[chosen]}"
        schema = replace(schema, secrets={**schema.secrets, secret: (rest, names[chosen])})
    return replace(
        data, secrets={**data.secrets, secret: (codes == chosen).to(codes.dtype)}, schema=schema
    )


def code_of(codes: Tensor, secret: str, names: Sequence[str], value: str | None) -> int:
    """Return the code of the value that is asked about.

    Args:
        codes: the secret of each record ``[n]``.
        secret: its name, for messages.
        names: its values by code; empty for the codes themselves.
        value: one of them; by default the second of two, and of more the most frequent.

    Raises:
        InputError: the secret has no such value, or only one.
    """
    counts = torch.bincount(codes.cpu())
    named = [*names] or [str(code) for code in range(len(counts))]
    require(
        int((counts > 0).sum()) > 1,
        f"all records have the same value of {secret!r}, so its share is known; choose another "
        "--secret",
    )
    if value is not None:
        require(
            value in named,
            f"--ratio-of is {value!r}, no value of {secret!r}{nearest(value, named)}",
        )
        return named.index(value)
    return 1 if len(counts) == 2 else int(counts.argmax())
