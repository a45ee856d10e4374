"""Tells a property of a client's records from its update, by clients that the auditor simulates."""

from collections.abc import Mapping, Sequence
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
from sklearn.preprocessing import StandardScaler
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
from leakgauge.results.scores import Judged, score
from leakgauge.training.optimizers import sgd
from leakgauge.training.participant import Turn
from leakgauge.training.protocol import Protocol
from leakgauge.training.update import Update
from leakgauge.training.uploading import upload_of

Floats = NDArray[np.float64]

Fold = list[NDArray[np.int64]]
"""Rows of records, by the value of the property."""

Clients = list[tuple[NDArray[np.int64], int]]
"""Rows of the records of each client, and the value that they all have."""

Simulated = tuple[NDArray[np.float32], NDArray[np.int64]]
"""What is read of updates ``[n, D]``, and the value of each ``[n]``."""

JUDGED = 10
"""Simulated clients of each value and fold that the attacker is judged by, at most."""

COORDINATES = 20_000
"""Coordinates of an update that the attacker reads, drawn at random, at most."""

COMPONENTS = 16
"""Leading components of simulated updates that the attacker reads, at most."""

TINY = 1e-20
"""The norm of a part that does not change is taken for this."""

SMALLEST = 1e-6
"""Probabilities stay from it, so that no value is ruled out for certain."""


@dataclass(frozen=True, eq=False)
class PropertyResult:
    """What the attacker says of one client's update.

    Attributes:
        log_posterior: of each value of the property, of the real update ``[m]``.
        truth: values of the simulated clients that it is judged by ``[n]``.
        judged: log posteriors of those ``[n, m]``.
    """

    log_posterior: Floats
    truth: NDArray[np.int64]
    judged: Floats

    def to_arrays(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return it as arrays and plain values."""
        arrays = {"log_posterior": self.log_posterior, "truth": self.truth, "judged": self.judged}
        return arrays, {}

    def estimates(self, *, seed: int) -> dict[str, Estimate]:
        """Return the figures on simulated clients, resampled over these."""
        judged = Judged(self.truth, self.judged, np.arange(len(self.truth)))
        rng = stream(seed, NAME, PROPERTY, "bootstrap")
        return score(judged, majority=1 / self.judged.shape[1], rng=rng)


def infer_property(prepared: FederationPrepared, one: KeptUpdate) -> PropertyResult:
    """Return the property that an attacker reads from a client's update.

    It simulates clients from where the real one started, each with records of one value, trained as
    the real one was. They teach a logistic regression. Other simulated clients show how well it
    does: no two of these share a record, and none shares one with a client that it learned from.
    The records are dealt to folds for that, and each fold is judged by what the others teach.

    Raises:
        InputError: a simulated training diverges.
    """
    spec = prepared.spec
    secret = str(spec.secret)
    real = one.update(prepared.task.model, prepared.training)
    task = Task(real.in_place(prepared.task.model), prepared.task.loss)
    size = one.examples or spec.images or 1
    seed = derive(spec.seed, NAME, PROPERTY, one.number, one.client)
    kept, parts = _coordinates(real, seed), len(real.before)
    simulate = partial(_features, prepared.data, task, real, _protocol(prepared, one, size), kept)
    dealt = deal(prepared.data, prepared.public, secret, stream(seed, "folds"))
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
    return PropertyResult(log_posterior=own, truth=truth, judged=np.concatenate(found))


def from_arrays(kept: tuple[Mapping[str, Any], Mapping[str, Any]]) -> PropertyResult:
    """Return what ``to_arrays`` gave."""
    arrays, _ = kept
    return PropertyResult(arrays["log_posterior"], arrays["truth"], arrays["judged"])


def _protocol(prepared: FederationPrepared, one: KeptUpdate, size: int) -> Protocol:
    known: LocalTraining = prepared.known(one)
    assert known.lr is not None
    momentum = known.momentum or 0.0
    return Protocol(
        rounds=1,
        lr=known.lr,
        optimizer=partial(sgd, lr=known.lr, momentum=momentum) if momentum else None,
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
    """The change of weights ``[D]`` of a simulated client with these records, where it is read."""
    mine = replace(data.rows(torch.from_numpy(rows).to(data.y.device)), users=None)
    seed = derive(0, rows.tobytes().hex())
    turn = Turn(mine, none(), stream(seed, "batches"), seed, derive(seed, "model"))
    received = {**real.before, **real.held}
    with one_thread():
        sent = upload_of(task, received, turn, protocol, who="a simulated client", number=1)
    return _read(sent, kept)


def deal(data: Dataset, public: Tensor, secret: str, rng: np.random.Generator) -> list[Fold]:
    """Return the rows of public records in folds, by the value of the property; shares are equal.

    Args:
        data: all records.
        public: rows of those that no client has.
        secret: the property.
        rng: deals.
    """
    rows = public.cpu().numpy()
    codes = data.secrets[secret].cpu().numpy()[rows]
    folds: list[Fold] = [[] for _ in range(FOLDS)]
    for value in range(int(data.secrets[secret].max()) + 1):
        order = rng.permutation(rows[codes == value])
        for fold, part in zip(folds, np.array_split(order, FOLDS), strict=True):
            fold.append(part)
    return folds


def disjoint(fold: Fold, size: int) -> Clients:
    """Return the records of clients of each value that share none, at most ``JUDGED`` of each.

    >>> [value for _, value in disjoint([np.arange(7), np.arange(7, 11)], 3)]
    [0, 0, 1]
    """
    return [
        (rows[at : at + size], value)
        for value, rows in enumerate(fold)
        for at in range(0, len(rows) - size + 1, size)[:JUDGED]
    ]


def _overlapping(fold: Fold, count: int, size: int, rng: np.random.Generator) -> Clients:
    """Return the records of clients that may share some, each value equally often."""
    return [
        (_drawn(fold[number % len(fold)], size, rng), number % len(fold)) for number in range(count)
    ]


def _simulated(simulate: Any, clients: Clients) -> Simulated:
    """Updates of clients ``[n, D]``, and the value of each ``[n]``."""
    features = [simulate(rows) for rows, _ in clients]
    truth = np.array([value for _, value in clients], dtype=np.int64)
    return np.stack(features) if features else np.zeros((0, 0), np.float32), truth


def _drawn(rows: NDArray[np.int64], size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Records of a simulated client: different ones where there are enough."""
    if len(rows) >= size:
        return rng.permutation(rows)[:size]
    return rng.choice(rows, size=size)


def _fitted(taught: Sequence[Simulated], parts: int) -> Pipeline:
    """Fit a logistic regression on components of the coordinates and on the last ``parts``."""
    features = np.concatenate([features for features, _ in taught])
    truth = np.concatenate([truth for _, truth in taught])
    count = min(COMPONENTS, len(features) // 4, features.shape[1] - parts)
    leading = make_pipeline(StandardScaler(), PCA(count, random_state=0))
    both = ColumnTransformer(
        [("coordinates", leading, slice(0, -parts)), ("sizes", "passthrough", slice(-parts, None))]
    )
    regression = LogisticRegression(max_iter=1000)
    return make_pipeline(both, StandardScaler(), regression).fit(features, truth)


def _log_posterior(fitted: Pipeline, features: NDArray[Any]) -> Floats:
    chances = fitted.predict_proba(features.astype(np.float32))
    found: Floats = np.log(np.clip(chances, SMALLEST, 1 - SMALLEST))
    return found


def _coordinates(update: Update, seed: int) -> Tensor:
    total = sum(leaf.numel() for leaf in update.before.values())
    drawn = stream(seed, "coordinates").permutation(total)[:COORDINATES]
    return torch.from_numpy(np.sort(drawn))


def _read(sent: Update, kept: Tensor) -> NDArray[np.float32]:
    """What the attacker reads of an update ``[D]``: coordinates, then the log norm of each part.

    The direction of a change depends on the labels, too; the size of its parts depends on them
    less.
    """
    after = sent.after()
    change = [after[name].detach() - sent.before[name] for name in sorted(sent.before)]
    flat = torch.cat([leaf.flatten() for leaf in change]).cpu()[kept]
    norms = torch.stack([leaf.norm().cpu() for leaf in change]).clamp(min=TINY).log()
    found: NDArray[np.float32] = torch.cat([flat, norms]).float().numpy()
    return found


def over_rounds(each: Sequence[PropertyResult]) -> Floats:
    """Return the log posterior of a client over its rounds ``[m]``, by Bayes with a uniform prior.

    >>> one = PropertyResult(np.log([0.8, 0.2]), np.zeros(0), np.zeros((0, 2)))
    >>> np.exp(over_rounds([one, one])).round(3).tolist()
    [0.941, 0.059]
    """
    total = np.sum([one.log_posterior for one in each], axis=0)
    found: Floats = total - np.logaddexp.reduce(total)
    return found
