"""Infers a property of a client's records from its update, by simulating clients."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from torch import Tensor

from leakgauge.core.rng import derive, stream
from leakgauge.core.threads import one_thread
from leakgauge.core.types import Dataset, Task
from leakgauge.defenses import none
from leakgauge.federation.run.preparing import FOLDS, FederationPrepared
from leakgauge.federation.spec import NAME, PROPERTY
from leakgauge.integrations.kept_reading import KeptUpdate
from leakgauge.integrations.training_settings import LocalTraining
from leakgauge.results.measurements import Estimate
from leakgauge.results.scores import ScoredTrials, score
from leakgauge.results.statistics import within_deviations
from leakgauge.runs.parts import Kept
from leakgauge.training.catalog import SGD, parse_optimizer
from leakgauge.training.federation import upload_of
from leakgauge.training.participant import Turn
from leakgauge.training.protocol import Protocol
from leakgauge.training.update import Update

Floats = NDArray[np.float64]

Fold = list[NDArray[np.int64]]
"""Rows of records, by the value of the property."""

Clients = list[tuple[NDArray[np.int64], int]]
"""Rows of the records of each client, and the value that they all have."""

Simulated = tuple[NDArray[np.float32], NDArray[np.int64]]
"""Features of updates ``[n, D]``, and the value of each ``[n]``."""

SCORED = 10
"""Largest number of simulated clients of each value and fold for scoring the attacker."""

COORDINATES = 20_000
"""Largest number of randomly drawn coordinates of an update that the attacker reads."""

COMPONENTS = 16
"""Largest number of leading components of simulated updates that the attacker reads."""

TINY = 1e-20
"""Norm of a part that does not change."""

SMALLEST = 1e-6
"""Smallest probability of a value."""


@dataclass(frozen=True, eq=False)
class PropertyResult:
    """The attacker's posterior for one client's update.

    Attributes:
        log_posterior: log posterior of each value of the property, for the real update ``[m]``.
        truth: values of the simulated clients for scoring ``[n]``.
        scored: log posteriors of those ``[n, m]``.
    """

    log_posterior: Floats
    truth: NDArray[np.int64]
    scored: Floats

    def to_arrays(self) -> Kept:
        """Return the result as arrays and plain values."""
        arrays = {"log_posterior": self.log_posterior, "truth": self.truth, "judged": self.scored}
        return arrays, {}

    def estimates(self, *, seed: int) -> dict[str, Estimate]:
        """Return the figures on simulated clients, resampled over the clients."""
        judged = ScoredTrials(self.truth, self.scored, np.arange(len(self.truth)))
        rng = stream(seed, NAME, PROPERTY, "bootstrap")
        return score(judged, majority=1 / self.scored.shape[1], rng=rng)


def infer_property(prepared: FederationPrepared, one: KeptUpdate) -> PropertyResult:
    """Return the property that an attacker infers from a client's update.

    It simulates clients from the real client's start, each with records of one value, trained like
    the real one. A logistic regression learns from their updates. Other simulated clients score it:
    no two of these share a record, and none shares one with a client that it learned from. For this
    the records are dealt to folds, and each fold is scored by a regression on the others.

    Raises:
        InputError: a simulated training diverges.
    """
    spec = prepared.spec
    real = one.update(prepared.task.model, prepared.training)
    task = Task(real.in_place(prepared.task.model), prepared.task.loss)
    size = one.examples or spec.images or 1
    seed = derive(spec.seed, NAME, PROPERTY, one.number, one.client)
    kept, parts = _coordinates(real, seed), len(real.before)
    simulate = partial(_features, prepared.data, task, real, _protocol(prepared, one, size), kept)
    dealt = deal(prepared.data, prepared.public, prepared.secret, stream(seed, "folds"))
    teaching = [
        _simulated(simulate, _overlapping(fold, spec.shadow // FOLDS, size, stream(seed, "t", at)))
        for at, fold in enumerate(dealt)
    ]
    judged = [_simulated(simulate, disjoint(fold, size)) for fold in dealt]
    found = []
    for at, (features, _) in enumerate(judged):
        others = [each for other, each in enumerate(teaching) if other != at]
        if len(features):
            found.append(_log_posterior(_fitted(others, parts), features))
    own = _log_posterior(_fitted(teaching, parts), _read(real, kept)[None])[0]
    truth = np.concatenate([truth for _, truth in judged])
    return PropertyResult(log_posterior=own, truth=truth, scored=np.concatenate(found))


def from_arrays(kept: Kept) -> PropertyResult:
    """Return the result from the values of ``to_arrays``."""
    arrays, _ = kept
    return PropertyResult(arrays["log_posterior"], arrays["truth"], arrays["judged"])


def _protocol(prepared: FederationPrepared, one: KeptUpdate, size: int) -> Protocol:
    known: LocalTraining = prepared.known(one)
    assert known.lr is not None
    return Protocol(
        rounds=1,
        lr=known.lr,
        optimizer=parse_optimizer(known.named_optimizer or SGD, lr=known.lr),
        epochs=1 if known.steps else known.epochs or 1,
        steps=known.steps,
        batch_size=min(known.batch_size or size, size),
    )


def _features(
    data: Dataset,
    task: Task,
    real: Update,
    protocol: Protocol,
    kept: Tensor,
    rows: NDArray[np.int64],
) -> NDArray[np.float32]:
    """Return the features ``[D]`` of a simulated client's update on these records."""
    mine = replace(data.rows(torch.from_numpy(rows).to(data.y.device)), users=None)
    seed = derive(0, rows.tobytes().hex())
    turn = Turn(mine, none(), stream(seed, "batches"), seed, derive(seed, "model"))
    received = {**real.before, **real.held}
    with one_thread():
        sent = upload_of(task, received, turn, protocol, who="a simulated client", number=1)
    return _read(sent, kept)


def deal(data: Dataset, public: Tensor, secret: str, rng: np.random.Generator) -> list[Fold]:
    """Return the rows of public records in equal folds, by the value of the property."""
    rows = public.cpu().numpy()
    codes = data.secrets[secret].cpu().numpy()[rows]
    folds: list[Fold] = [[] for _ in range(FOLDS)]
    for value in range(int(data.secrets[secret].max()) + 1):
        order = rng.permutation(rows[codes == value])
        for fold, part in zip(folds, np.array_split(order, FOLDS), strict=True):
            fold.append(part)
    return folds


def disjoint(fold: Fold, size: int) -> Clients:
    """Return the records of disjoint clients of each value, at most ``SCORED`` of each.

    >>> [value for _, value in disjoint([np.arange(7), np.arange(7, 11)], 3)]
    [0, 0, 1]
    """
    return [
        (rows[at : at + size], value)
        for value, rows in enumerate(fold)
        for at in range(0, len(rows) - size + 1, size)[:SCORED]
    ]


def _overlapping(fold: Fold, count: int, size: int, rng: np.random.Generator) -> Clients:
    """Return the records of clients that may share some, each value equally often.

    A client has no record twice where a value has enough of them.
    """
    clients = []
    for value in (number % len(fold) for number in range(count)):
        rows = fold[value]
        own = rng.permutation(rows)[:size] if len(rows) >= size else rng.choice(rows, size=size)
        clients.append((own, value))
    return clients


def _simulated(simulate: Any, clients: Clients) -> Simulated:
    """Return the features of clients' updates ``[n, D]``, and the value of each ``[n]``."""
    features = [simulate(rows) for rows, _ in clients]
    truth = np.array([value for _, value in clients], dtype=np.int64)
    return np.stack(features) if features else np.zeros((0, 0), np.float32), truth


def _fitted(taught: Sequence[Simulated], parts: int) -> Pipeline:
    """Fit a logistic regression on components of the coordinates and on the last ``parts``.

    Standardised values are bounded: a coordinate that hardly changes in simulated updates would
    rule the answer where it does.
    """
    features = np.concatenate([features for features, _ in taught])
    truth = np.concatenate([truth for _, truth in taught])
    count = min(COMPONENTS, len(features) // 4, features.shape[1] - parts)
    bounded = FunctionTransformer(within_deviations)
    leading = make_pipeline(StandardScaler(), bounded, PCA(count, random_state=0))
    both = ColumnTransformer(
        [("coordinates", leading, slice(0, -parts)), ("sizes", "passthrough", slice(-parts, None))]
    )
    regression = LogisticRegression(max_iter=1000)
    return make_pipeline(both, StandardScaler(), bounded, regression).fit(features, truth)


def _log_posterior(fitted: Pipeline, features: NDArray[Any]) -> Floats:
    chances = fitted.predict_proba(features.astype(np.float32))
    return np.asarray(np.log(np.clip(chances, SMALLEST, 1 - SMALLEST)))


def _coordinates(update: Update, seed: int) -> Tensor:
    total = sum(leaf.numel() for leaf in update.before.values())
    drawn = stream(seed, "coordinates").permutation(total)[:COORDINATES]
    return torch.from_numpy(np.sort(drawn))


def _read(sent: Update, kept: Tensor) -> NDArray[np.float32]:
    """Return the features of an update ``[D]``: coordinates, then the log norm of each part.

    The direction of a change also depends on the labels; the size of its parts less so.
    """
    after = sent.after()
    change = [after[name].detach() - sent.before[name] for name in sorted(sent.before)]
    flat = torch.cat([leaf.flatten() for leaf in change]).cpu()[kept]
    norms = torch.stack([leaf.norm().cpu() for leaf in change]).clamp(min=TINY).log()
    return np.asarray(torch.cat([flat, norms]).float().numpy(), np.float32)


def over_rounds(each: Sequence[PropertyResult]) -> Floats:
    """Return the log posterior of a client over its rounds ``[m]``, by Bayes with a uniform prior.

    >>> one = PropertyResult(np.log([0.8, 0.2]), np.zeros(0), np.zeros((0, 2)))
    >>> np.exp(over_rounds([one, one])).round(3).tolist()
    [0.941, 0.059]
    """
    total = np.sum([one.log_posterior for one in each], axis=0)
    return np.asarray(total - np.logaddexp.reduce(total))
