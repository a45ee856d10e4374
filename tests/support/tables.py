"""Small tables of synthetic users."""

import numpy as np
import pandas as pd

from leakgauge.core.rng import stream


def frame(n: int = 600) -> pd.DataFrame:
    rng = stream(0, "frame")
    sex = np.where(rng.random(n) < 0.5, "f", "m")
    height = rng.normal(170, 7, size=n) + 12 * (sex == "m")
    income = np.where(rng.normal(size=n) + (height - 175) / 20 > 0, "high", "low")
    return pd.DataFrame(
        {
            "height": height,
            "town": rng.choice(["a", "b", "c"], size=n),
            "sex": sex,
            "income": income,
            "person": np.arange(n) // 2,
            "age": rng.integers(18, 90, size=n),
        }
    )
