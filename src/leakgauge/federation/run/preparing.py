"""Prepares kept updates and the auditor's records, and checks the questions that they allow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from leakgauge.core.checks import InputError, require, require_known
from leakgauge.core.names import few
from leakgauge.core.types import Dataset, Task
from leakgauge.core.versions import versions
from leakgauge.data.source import Source
from leakgauge.federation.run.owners import owners
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
from leakgauge.integrations.kept_reading import KeptRounds, KeptUpdate, other_runs, read_kept
from leakgauge.integrations.training_settings import LocalTraining
from leakgauge.inversion.run.received import local_steps
from leakgauge.results.measurements import Run
from leakgauge.runs.question import Prepared
from leakgauge.runs.spec import plain
from leakgauge.training.recognition import Understood, understood

FOLDS, CLIENTS = 4, 8
"""Folds of the public records, and smallest number of clients simulated for each value."""

FEWEST = 10
"""Smallest number of a client's records, and of unused records, for membership."""

_NOT_SHOWN = ("kept", "files", "data")
"""Settings that the description of a run omits; the checksum represents the kept updates."""


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
    folder: str = ""
    read: Mapping[KeptUpdate, Understood] = field(default_factory=dict)

    def inputs(self) -> dict[str, str]:
        """Return the digest of the kept updates."""
        return {"kept updates": self.folder}

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
    prepared = _opened(spec, source)
    prepared = replace(
        prepared, read={one: _understood(prepared, one) for one in prepared.kept.updates}
    )
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
    secret = _secret(prepared) if PROPERTY in able else ""
    return replace(
        prepared,
        spec=replace(spec, ask=able, secret=secret or spec.secret, files=prepared.kept.fingerprint),
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


def _understood(prepared: FederationPrepared, one: KeptUpdate) -> Understood:
    """Return the optimizer of an update.

    Raises:
        InputError: the update does not fit the model, or contradicts the optimizer that is named.
    """
    update = one.update(prepared.task.model, prepared.training)
    try:
        return understood(update, named=prepared.known(one).named_optimizer)
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
    require(
        not prepared.data.y.is_floating_point(),
        "labels are numbers, which no search can infer from an update",
    )


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
        alone = _without_others(prepared) if name in OVER_ROUNDS else ""
        require(not alone, f"--adversary {name}: {alone}")
    asked = [name for name in prepared.kept.clients if name in prepared.held]
    fewest = min([len(prepared.public), *(len(prepared.held[name]) for name in asked)])
    require(
        len(asked) > 0 and fewest >= FEWEST,
        f"membership needs {FEWEST} records of a client and {FEWEST} that no client has; bring "
        "more",
    )


def _without_others(prepared: FederationPrepared) -> str:
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


def description_of(prepared: FederationPrepared) -> Run:
    """Return the settings and facts of a run for the report."""
    kept, source = prepared.kept, prepared.source
    facts = {
        "name": source.name,
        "fingerprint": source.fingerprint,
        "updates": len(kept.updates),
        "rounds": len(kept.rounds),
        "clients": len(kept.clients),
        "public": len(prepared.public),
        "kept": kept.fingerprint,
        "seen by": ", ".join(dict.fromkeys(one.seen for one in kept.updates)),
        "framework": ", ".join(dict.fromkeys(one.source for one in kept.updates)),
    }
    shown = {
        name: value
        for name, value in plain(prepared.spec).items()
        if name not in _NOT_SHOWN and value not in (None, [], {}, False)
    }
    return Run("", shown, facts, (*source.notes, *_notes(prepared)), versions())


def _notes(prepared: FederationPrepared) -> Sequence[str]:
    notes = [f"{plain_word(ask)} is not asked: {why}" for ask, why in prepared.not_asked.items()]
    others = other_runs(prepared.kept)
    if others:
        notes.append(
            f"the folder also keeps other runs, which are not read: {few(map(str, others))}"
        )
    alone = _without_others(prepared)
    if MEMBERSHIP in prepared.spec.ask and alone:
        notes.append(f"{' and '.join(OVER_ROUNDS)} are not run: {alone}")
    if RECONSTRUCTION not in prepared.spec.ask:
        return notes
    larger = sum(
        one.examples is not None and prepared.spec.images is None and one.examples > limit
        for one in prepared.kept.updates
        for limit in [count_of(prepared, one)]
    )
    if larger:
        notes.append(
            f"{larger} updates have more records than a search looks for; it finds records with a "
            "mean gradient like the update's (--images)"
        )
    each = ((prepared.known(one), one.examples) for one in prepared.kept.updates)
    moves = any(known.momentum and (known.steps_over(n) or 1) > 1 for known, n in each)
    if not prepared.spec.simulate and moves:
        notes.append(
            "clients use momentum: their change of weights is scaled to a mean gradient as if the "
            "gradient were equal at each step; --simulate runs the steps themselves"
        )
    if not prepared.held:
        notes.append("the clients' records are unknown here, so rebuilt ones are not scored")
    return notes
