"""Tells a property of a client's records from its update, by clients that the auditor simulates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from leakgauge.core.rng import derive, stream
from leakgauge.core.threads import one_thread
from leakgauge.core.types import Dataset, Task
from leakgauge.defenses import none
from leakgauge.federation.run.preparing import Prepared
from leakgauge.federation.words import NAME, PROPERTY
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

COORDINATES = 20_000
"""Coordinates of an update that the attacker reads, drawn at random, at most."""

COMPONENTS = 16
"""Leading components of simulated updates that the attacker reads, at most."""

SMALLEST = 1e-6
"""Probabilities stay from it, so that no value is ruled out for certain."""


@dataclass(frozen=True, eq=False)
class Named:
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


def name_property(prepared: Prepared, one: KeptUpdate) -> Named:
    """Return the property that an attacker reads from a client's update.

    It simulates clients from where the real one started, each with records of one value, trained as
    the real one was. Half of them teach a logistic regression; the others, made of other public
    records, show how well it does.

    Raises:
        InputError: a simulated training diverges.
    """
    spec = prepared.spec
    secret = str(spec.secret)
    real = one.update(prepared.task.model, prepared.training)
    task = Task(real.in_place(prepared.task.model), prepared.task.loss)
    size = one.examples or spec.images or 1
    simulate = partial(_change, task, real, _protocol(prepared, one, size))
    seed = derive(spec.seed, NAME, PROPERTY, one.number, one.client)
    halves = _halves(prepared, secret, seed)
    values = int(prepared.data.secrets[secret].max()) + 1
    kept = _coordinates(real, seed)
    sides = [
        _clients(simulate, half, secret, values, spec.shadow // 2, size, kept, derive(seed, name))
        for name, half in zip(("learning", "judging"), halves, strict=True)
    ]
    fitted = _fitted(*sides[0])
    flat = _flat({name: real.after()[name] - leaf for name, leaf in real.before.items()})
    return Named(
        log_posterior=_log_posterior(fitted, flat[kept].cpu().numpy()[None])[0],
        truth=sides[1][1],
        judged=_log_posterior(fitted, sides[1][0]),
    )


def from_arrays(kept: tuple[Mapping[str, Any], Mapping[str, Any]]) -> Named:
    """Return what ``to_arrays`` gave."""
    arrays, _ = kept
    return Named(arrays["log_posterior"], arrays["truth"], arrays["judged"])


def _protocol(prepared: Prepared, one: KeptUpdate, size: int) -> Protocol:
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


def _change(
    task: Task, real: Update, protocol: Protocol, data: Dataset, seed: int
) -> dict[str, Tensor]:
    """The change of weights of a simulated client with these records."""
    received = {**real.before, **real.held}
    turn = Turn(data, none(), stream(seed, "batches"), seed, derive(seed, "model"))
    with one_thread():
        sent = upload_of(task, received, turn, protocol, who="a simulated client", number=1)
    return {name: sent.after()[name] - leaf for name, leaf in real.before.items()}


def _halves(prepared: Prepared, secret: str, seed: int) -> list[Dataset]:
    """Public records in two halves of equal shares of the property; no record is in both."""
    rows, codes = prepared.public, prepared.data.secrets[secret][prepared.public].cpu().numpy()
    rng = stream(seed, "halves")
    picked: list[list[int]] = [[], []]
    for value in np.unique(codes):
        order = rng.permutation(np.flatnonzero(codes == value))
        for half, part in enumerate(np.array_split(order, 2)):
            picked[half] += part.tolist()
    return [prepared.data.rows(rows[torch.tensor(one, device=rows.device)]) for one in picked]


def _clients(
    simulate: Any,
    data: Dataset,
    secret: str,
    values: int,
    count: int,
    size: int,
    kept: Tensor,
    seed: int,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Updates of simulated clients ``[n, D]``, and the value that all records of each have."""
    rng = stream(seed, "clients")
    truth = rng.permutation(np.arange(count) % values)
    codes = data.secrets[secret].cpu().numpy()
    rows = [np.flatnonzero(codes == value) for value in range(values)]
    features = []
    for number, value in enumerate(truth.tolist()):
        drawn = _drawn(rows[value], size, rng)
        mine = replace(data.rows(torch.from_numpy(drawn).to(data.y.device)), users=None)
        flat = _flat(simulate(mine, derive(seed, number)))
        features.append(flat[kept].float().cpu().numpy())
    return np.stack(features), truth


def _drawn(rows: NDArray[np.int64], size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Records of a simulated client: different ones where there are enough."""
    if len(rows) >= size:
        return rng.permutation(rows)[:size]
    return rng.choice(rows, size=size)


def _fitted(features: NDArray[np.float32], truth: NDArray[np.int64]) -> Pipeline:
    parts = min(COMPONENTS, len(features) // 4)
    return make_pipeline(
        StandardScaler(),
        PCA(parts, random_state=0),
        StandardScaler(),
        LogisticRegression(max_iter=1000),
    ).fit(features, truth)


def _log_posterior(fitted: Pipeline, features: NDArray[Any]) -> Floats:
    chances = fitted.predict_proba(features.astype(np.float32))
    found: Floats = np.log(np.clip(chances, SMALLEST, 1 - SMALLEST))
    return found


def _coordinates(update: Update, seed: int) -> Tensor:
    total = sum(leaf.numel() for leaf in update.before.values())
    drawn = stream(seed, "coordinates").permutation(total)[:COORDINATES]
    return torch.from_numpy(np.sort(drawn))


def _flat(change: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([leaf.flatten() for leaf in change.values()])


def over_rounds(each: Sequence[Named]) -> Floats:
    """Return the log posterior of a client over its rounds ``[m]``, by Bayes with a uniform prior.

    >>> one = Named(np.log([0.8, 0.2]), np.zeros(0), np.zeros((0, 2)))
    >>> np.exp(over_rounds([one, one])).round(3).tolist()
    [0.941, 0.059]
    """
    total = np.sum([one.log_posterior for one in each], axis=0)
    found: Floats = total - np.logaddexp.reduce(total)
    return found
