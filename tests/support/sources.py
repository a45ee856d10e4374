"""Small sources of images and of a table, for the reconstruction of records."""

import numpy as np
import pandas as pd

from leakgauge.core.rng import stream
from leakgauge.data import Source

SIDE, CLASSES = 8, 3


def pictures(n: int = 12, *, side: int = SIDE, seed: int = 0) -> Source:
    pixels = stream(seed, "pictures").integers(0, 256, (n, 3, side, side), dtype=np.uint8)
    frame = pd.DataFrame({"y": np.arange(n) % CLASSES})
    return Source("pictures", frame, pixels, None, "0" * 64)


def people(n: int = 60) -> pd.DataFrame:
    rng = stream(0, "people")
    return pd.DataFrame(
        {
            "height": rng.normal(170, 9, size=n).round(2),
            "town": rng.choice(["a", "b", "c"], size=n),
            "sex": rng.choice(["f", "m"], size=n),
            "income": rng.choice(["high", "low"], size=n),
            "age": rng.integers(18, 90, size=n),
        }
    )


def table_source(frame: pd.DataFrame) -> Source:
    return Source("people", frame, None, None, "0" * 64)
