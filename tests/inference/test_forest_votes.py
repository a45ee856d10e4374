"""The votes of a forest are those of scikit-learn."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

from leakgauge.core.rng import stream
from leakgauge.inference.adversaries.forest import votes


@pytest.mark.parametrize("values", [2, 4])
def test_votes_of_few_rows_are_those_of_scikit_learn(values: int) -> None:
    rng = stream(0, "forest", values)
    x, y = rng.normal(size=(200, 7)).astype(np.float32), rng.integers(values, size=200)
    model = RandomForestClassifier(20, max_depth=3, random_state=0).fit(x, y)
    for rows in (x[:1], x[:3], x):
        np.testing.assert_allclose(votes(model, rows), model.predict_proba(rows), atol=1e-12)


def test_features_that_are_not_finite_are_refused_as_before() -> None:
    model = RandomForestClassifier(2, random_state=0).fit(np.eye(4), [0, 1, 0, 1])
    with pytest.raises(ValueError, match="infinity"):
        votes(model, np.full((1, 4), np.inf, dtype=np.float32))
