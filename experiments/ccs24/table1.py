"""Print the correlation of label and secret in each dataset, and Table 1 of Li et al. (2024).

    python experiments/ccs24/table1.py

This is Pearson's correlation of the codes of the values. The paper does not say how values are
coded, which decides the sign for two values and the figure for more: the orders here are those of
its text, and of the files (UTKFace). Neither does it say which records it uses: here it is all.
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
        data: name of the dataset.
        label: column that the model predicts.
        labels: values of the label, by code.
        secret: column that must not be revealed.
        secrets: values of the secret, by code.
        paper: correlation in the paper.
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
        InputError: the data hold a value without a code.
    """
    label = coded(frame[row.label], row.labels)
    secret = coded(frame[row.secret], row.secrets)
    return float(np.corrcoef(label, secret)[0, 1])


def coded(values: pd.Series, names: Sequence[str]) -> np.ndarray:
    """Return the index of each value in the names; a missing value counts as unknown."""
    texts = values.astype(object).where(values.notna(), UNKNOWN).astype(str)
    codes = texts.map({name: code for code, name in enumerate(names)})
    if codes.isna().any():
        raise InputError(
            f"column {values.name!r} has values other than {', '.join(names)}: "
            f"{', '.join(sorted(set(texts[codes.isna()])))[:80]}"
        )
    return codes.to_numpy(dtype=np.float64)


def main() -> None:
    """Print a line for each dataset, or the reason why it is missing."""
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
