"""Prepares kept updates and the auditor's records, and checks the questions that they allow."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import mul
from pathlib import Path

import torch
from torch import Tensor

from leakgauge.core.checks import InputError, require, require_known
from leakgauge.core.names import few
from leakgauge.core.types import Dataset, Task
from leakgauge.data.source import Source
from leakgauge.federation.run.frozen import taken_from_task
from leakgauge.federation.run.normalisation import statistics_kind
from leakgauge.federation.run.owners import owners
from leakgauge.federation.run.searching import starts_of
from leakgauge.federation.spec import (
    ASKS,
    CLIENT,
    FEWEST_CLIENTS,
    IMAGES,
    MEMBERSHIP,
    OVER_ROUNDS,
    PROPERTY,
    RECONSTRUCTION,
    FederationSpec,
    plain_word,
)
from leakgauge.gradients import params_of
from leakgauge.integrations.filter_doubts import FilterDoubts, filter_doubts
from leakgauge.integrations.kept_reading import KeptRounds, KeptUpdate, read_kept
from leakgauge.integrations.training_settings import LocalTraining
from leakgauge.inversion.run.received_steps import local_steps
from leakgauge.inversion.search.priors import running
from leakgauge.runs.question import Prepared
from leakgauge.training.recognition import Understood, understood

FOLDS, CLIENTS = 4, 8
"""Folds of the public records, and smallest number of clients simulated for each value."""

FEWEST = 10
"""Smallest number of a client's records, and of unused records, for membership."""


@dataclass(frozen=True, eq=False)
class FederationPrepared(Prepared):
    """Kept updates and the auditor's records.

    Attributes:
        spec: settings with the allowed questions, the property and the checksum of the updates.
        source: the auditor's task and records.
        kept: the chosen updates.
        task: the clients' model and its loss.
        data: all of the auditor's records.
        public: rows of the records that no client has.
        held: rows of each client's known records, by the client's name.
        training: training settings of the clients, from the auditor.
        whole: all kept updates; those that are not attacked show how others' models behave.
        secret: the property to infer; empty if it is not asked.
        not_asked: the reason for each question that is not asked.
        read: the optimizer of each update, as named or as recognised.
        assumed: what is taken from the task's model for each update without proof, in words.
        statistics: how the search in each update knows the statistics of BatchNorm's batches.
        doubted: what is wrong with the clients' filters; None if no configuration is named.
        folder: sha256 of all kept updates; clients that are left out decide who owns which records.
    """

    spec: FederationSpec
    kept: KeptRounds
    task: Task
    data: Dataset
    public: Tensor
    held: dict[str, Tensor]
    training: LocalTraining
    whole: KeptRounds
    secret: str = ""
    not_asked: Mapping[str, str] = field(default_factory=dict)
    doubted: FilterDoubts | None = None
    folder: str = ""
    read: Mapping[KeptUpdate, Understood] = field(default_factory=dict)
    assumed: Mapping[KeptUpdate, tuple[str, ...]] = field(default_factory=dict)
    statistics: Mapping[KeptUpdate, str | None] = field(default_factory=dict)

    def inputs(self) -> dict[str, str]:
        """Return the digests of the kept updates and of the configuration of filters."""
        filters = {} if self.doubted is None else {"filters": self.doubted.digest}
        return {"kept updates": self.folder, **filters}

    @property
    def others(self) -> Dataset:
        """The records that no client has."""
        return self.data.rows(self.public)

    def known(self, one: KeptUpdate) -> LocalTraining:
        """Return the training settings of an update's client in its round."""
        known = one.training.updated(self.training)
        if one in self.read and known.named_optimizer is None:
            known = replace(known, optimizer=self.read[one].optimizer)
        return known


def prepare(spec: FederationSpec, source: Source) -> FederationPrepared:
    """Read the kept updates, and find the questions that the auditor's records allow.

    Raises:
        InputError: nothing was kept, the owners of the records are invalid, an update does not fit
            the model, or a question cannot be asked.
    """
    prepared = _with_filters(_opened(spec, source))
    prepared = replace(
        prepared, read={one: _understood(prepared, one) for one in prepared.kept.updates}
    )
    assumed = taken_from_task(
        prepared.task, prepared.kept.updates, prepared.training, str(spec.task), seed=spec.seed
    )
    prepared = replace(prepared, assumed=assumed)
    asked = spec.ask or ASKS
    refused: dict[str, str] = {}
    for ask in (*asked, *(one for one in ASKS if one not in asked)):
        try:
            _CHECKS[ask](prepared)
        except InputError as error:
            if ask in asked and (spec.ask or (ask == PROPERTY and spec.secret is not None)):
                raise
            refused[ask] = str(error)
    able = tuple(ask for ask in asked if ask not in refused)
    require(len(able) > 0, "; ".join(f"{plain_word(ask)}: {why}" for ask, why in refused.items()))
    if RECONSTRUCTION in able:
        prepared = _with_search(prepared)
    secret = _secret(prepared) if PROPERTY in able else ""
    return replace(
        prepared,
        spec=replace(
            prepared.spec, ask=able, secret=secret or spec.secret, files=prepared.kept.fingerprint
        ),
        secret=secret,
        not_asked={ask: refused.get(ask, "it was not asked") for ask in ASKS if ask not in able},
    )


def _opened(spec: FederationSpec, source: Source) -> FederationPrepared:
    """Return the kept updates with the owners of the auditor's records, before any check."""
    whole = read_kept(*spec.kept)
    kept = whole.only(spec.only_round, spec.only_client)
    assert source.task is not None
    assert source.dataset is not None
    data = source.dataset.to(spec.device)
    task = Task(source.task.model.to(spec.device), source.task.loss)
    public, held = owners(data, whole, spec.owner)
    training = LocalTraining(
        lr=spec.local_lr,
        batch_size=spec.batch_size,
        epochs=spec.local_epochs,
        steps=spec.local_steps,
        momentum=spec.momentum,
        optimizer=spec.local_optimizer,
    )
    return FederationPrepared(
        spec, source, kept, task, data, public, held, training, whole, folder=whole.fingerprint
    )


def _with_filters(prepared: FederationPrepared) -> FederationPrepared:
    """Return the updates with what is wrong with the filters that a configuration names."""
    if prepared.spec.filters is None:
        return prepared
    size = sum(leaf.numel() for leaf in params_of(prepared.task.model).values())
    found = filter_doubts(Path(prepared.spec.filters), parameters=size)
    return replace(prepared, doubted=found)


def _understood(prepared: FederationPrepared, one: KeptUpdate) -> Understood:
    """Return the optimizer of an update.

    Raises:
        InputError: the update does not fit the model, or contradicts the optimizer that is named.
    """
    update = one.update(prepared.task.model, prepared.training)
    known = prepared.known(one)
    try:
        return understood(update, named=known.named_optimizer, beside=known.beside)
    except InputError as error:
        raise InputError(f"{one.name}: {error}") from error


def count_of(prepared: FederationPrepared, one: KeptUpdate) -> int:
    """Return the number of records that a search looks for in an update.

    Raises:
        InputError: the number is unknown.
    """
    if prepared.spec.images is not None:
        return prepared.spec.images
    if one.examples is None:
        raise InputError(f"{one.name}: the client's number of records is unknown; give --images")
    return min(one.examples, IMAGES)


def _check_reconstruction(prepared: FederationPrepared) -> None:
    for one in prepared.kept.updates:
        count_of(prepared, one)
        require(
            prepared.known(one).lr is not None,
            f"{one.name}: the kept files lack the clients' learning rate; give --local-lr",
        )
        if prepared.spec.simulate:
            _check_steps(prepared, one)
        _statistics(prepared, one)
    require(
        not prepared.data.y.is_floating_point(),
        "labels are numbers, which no search can infer from an update",
    )


def _statistics(prepared: FederationPrepared, one: KeptUpdate) -> str | None:
    model, known = prepared.task.model, prepared.known(one)
    if prepared.spec.statistics is None and not running(model):
        return None
    update, steps = one.update(model, known), known.steps_over(one.examples)
    return statistics_kind(prepared.spec.statistics, model, one, update, steps)


def _with_search(prepared: FederationPrepared) -> FederationPrepared:
    """Return the same with what the updates decide on the search for records."""
    spec, updates = prepared.spec, prepared.kept.updates
    steps = [prepared.known(one).steps_over(one.examples) or 1 for one in updates]
    counts = [count_of(prepared, one) for one in updates]
    passed = sum(map(mul, counts, steps)) if spec.simulate else sum(counts)
    starts = starts_of(spec, prepared.task, prepared.others.x, passed)
    statistics = {one: _statistics(prepared, one) for one in updates}
    return replace(prepared, spec=replace(spec, restarts=starts), statistics=statistics)


def _check_steps(prepared: FederationPrepared, one: KeptUpdate) -> None:
    update = one.update(prepared.task.model, prepared.known(one))
    try:
        local_steps(update, count_of(prepared, one))
    except InputError as error:
        raise InputError(f"{one.name}: {error}") from error


def _check_membership(prepared: FederationPrepared) -> None:
    require(
        len(prepared.held) > 0,
        f"the owners of the task's records are unknown; add a secret {CLIENT!r} to its Dataset: 0 "
        "for records that no client has, 1 for those of the client of partition 0, and so on; "
        f"kept are {few(prepared.kept.clients)}",
    )
    for name in prepared.spec.adversary:
        alone = without_others(prepared) if name in OVER_ROUNDS else ""
        require(not alone, f"--adversary {name}: {alone}")
    asked = [name for name in prepared.kept.clients if name in prepared.held]
    fewest = min([len(prepared.public), *(len(prepared.held[name]) for name in asked)])
    require(
        len(asked) > 0 and fewest >= FEWEST,
        f"membership needs {FEWEST} records of a client and {FEWEST} that no client has; bring "
        "more",
    )


def without_others(prepared: FederationPrepared) -> str:
    """Return why no client can be compared with others in its round; empty if one can."""
    numbers = [one.number for one in prepared.whole.updates]
    most = max(numbers.count(number) for number in prepared.kept.rounds)
    if most >= FEWEST_CLIENTS:
        return ""
    return (
        f"an attack by comparison needs {FEWEST_CLIENTS} clients or more in a round, and "
        f"{most} {'were' if most > 1 else 'was'} kept"
    )


def _check_property(prepared: FederationPrepared) -> None:
    secret = _secret(prepared)
    codes = prepared.data.secrets[secret][prepared.public]
    fewest = int(torch.bincount(codes, minlength=2).min())
    for one in prepared.kept.updates:
        size = one.examples or prepared.spec.images or 1
        needed = FOLDS * max(2, -(-CLIENTS // FOLDS)) * size
        require(
            fewest >= needed,
            f"{one.name}: to score {secret!r} by simulated clients of {size} records that share "
            f"none, each value needs {needed} records that no client has; there are {fewest}",
        )
        known = prepared.known(one)
        missing = [
            flag
            for flag, value in (
                ("--local-lr", known.lr),
                ("--batch-size", known.batch_size),
                ("--local-epochs", known.epochs or known.steps),
                ("--images", one.examples or prepared.spec.images),
            )
            if value is None
        ]
        require(
            not missing,
            f"{one.name}: the kept files lack settings for simulating clients; give "
            f"{', '.join(missing)}",
        )


_CHECKS = {
    RECONSTRUCTION: _check_reconstruction,
    MEMBERSHIP: _check_membership,
    PROPERTY: _check_property,
}


def _secret(prepared: FederationPrepared) -> str:
    """Return the property to infer."""
    others = [name for name in prepared.data.secrets if name != CLIENT]
    chosen = prepared.spec.secret
    if chosen is None:
        require(
            len(others) > 0,
            "the task's Dataset has no secret that could be a property of clients; add one",
        )
        return others[0]
    require_known(chosen, others, f"no secret {chosen!r} in the task's Dataset")
    return chosen
