"""Prints the correlation of label and secret in each dataset, beside Table 1 of Li et al. (2024).

    python experiments/ccs24/table1.py

It is Pearson's, of the codes of the values. The paper does not say how values are coded, which
decides the sign where there are two and the figure where there are more: the orders here are those
of its text, and of the files (UTKFace). It does not say either on which records: these are all.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from leakgauge.core.checks import InputError
from leakgauge.data import open_data

UNKNOWN = "unknown"


@dataclass(frozen=True)
class Row:
    """One dataset of the table.

    Attributes:
        data: its name.
        label: the column that the model predicts, ``labels`` its values by code.
        secret: the column that nobody should learn, ``secrets`` its values by code.
        paper: the paper's figure.
    """

    data: str
    label: str
    labels: Sequence[str]
    secret: str
    secrets: Sequence[str]
    paper: float


ROWS = (
    Row("adult", "income", ("<=50K", ">50K"), "sex", ("Male", "Female"), -0.1985),
    Row("heritage", "Charlson>0", ("no", "yes"), "sex", ("male", "female", UNKNOWN), -0.1123),
    Row("crema_d", "emotion", ("HAP", "SAD"), "sex", ("Male", "Female"), -0.0133),
    Row("celeba", "Smiling", ("0", "1"), "High_Cheekbones", ("0", "1"), 0.6904),
    Row(
        "utkface-ccs24", "age_group", ("0-30", "31-60", "61+"),
        "race", ("White", "Black", "Asian", "Indian"), -0.1788,
    ),
)  # fmt: skip


def correlation(row: Row, frame: pd.DataFrame) -> float:
    """Return Pearson's correlation of the codes of label and secret.

    Raises:
        InputError: the data hold a value that the row does not code.
    """
    label = coded(frame[row.label], row.labels)
    secret = coded(frame[row.secret], row.secrets)
    return float(np.corrcoef(label, secret)[0, 1])


def coded(values: pd.Series, names: Sequence[str]) -> np.ndarray:
    """Return the place of each value among the names; a missing one counts as unknown."""
    texts = values.astype(object).where(values.notna(), UNKNOWN).astype(str)
    codes = texts.map({name: code for code, name in enumerate(names)})
    if codes.isna().any():
        raise InputError(
            f"column {values.name!r} has values beside {', '.join(names)}: "
            f"{', '.join(sorted(set(texts[codes.isna()])))[:80]}"
        )
    return codes.to_numpy(dtype=np.float64)


def main() -> None:
    """Print a line for each dataset; one that is missing says why."""
    print(f"{'data':14} {'records':>8} {'ours':>8} {'paper':>8}")
    for row in ROWS:
        try:
            frame = open_data(row.data).frame
        except InputError as error:
            print(f"{row.data:14} {error}")
            continue
        print(f"{row.data:14} {len(frame):8,} {correlation(row, frame):8.4f} {row.paper:8.4f}")


if __name__ == "__main__":
    main()
