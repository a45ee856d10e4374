"""From a folder of kept updates and the auditor's records to what can be asked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from leakgauge.core.checks import InputError, require, require_known
from leakgauge.core.types import Dataset, Task
from leakgauge.federation.words import (
    ASKS,
    CLIENT,
    IMAGES,
    MEMBERSHIP,
    PROPERTY,
    RECONSTRUCTION,
    plain_word,
)
from leakgauge.integrations.kept_reading import Kept, KeptUpdate, read_kept
from leakgauge.integrations.training_settings import LocalTraining
from leakgauge.inversion.run.received import local_steps

if TYPE_CHECKING:
    from leakgauge.data.source import Source
    from leakgauge.federation.spec import FederationSpec

FOLDS, CLIENTS = 4, 8
"""Parts of the public records, and simulated clients of each value that the property is judged by,
at least."""

FEWEST = 10
"""Records of a client, and of nobody, that membership is asked of."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """Kept updates and the auditor's records.

    Attributes:
        spec: resolved.
        kept: the chosen updates.
        task: the clients' model and its loss.
        data: all of the auditor's records.
        public: rows of those that no client has.
        held: rows of each client's records, by its name; only of clients whose records are known.
        training: what clients do, as the auditor says.
    """

    spec: FederationSpec
    kept: Kept
    task: Task
    data: Dataset
    public: Tensor
    held: dict[str, Tensor]
    training: LocalTraining

    @property
    def others(self) -> Dataset:
        """The records that no client has."""
        return self.data.rows(self.public)

    def known(self, one: KeptUpdate) -> LocalTraining:
        """Return what the client of an update did in its round."""
        return one.training.updated(self.training)


def prepare(spec: FederationSpec, source: Source) -> Prepared:
    """Read the kept updates, and find out whose the auditor's records are.

    Raises:
        InputError: nothing was kept, or the records do not say whose they are.
    """
    whole = read_kept(spec.kept)
    kept = whole.only(spec.only_round, spec.only_client)
    assert source.task is not None
    assert source.dataset is not None
    data = source.dataset.to(spec.device)
    task = Task(source.task.model.to(spec.device), source.task.loss)
    public, held = _owners(data, whole)
    training = LocalTraining(
        lr=spec.local_lr,
        batch_size=spec.batch_size,
        epochs=spec.local_epochs,
        steps=spec.local_steps,
        momentum=spec.momentum,
    )
    return Prepared(spec, kept, task, data, public, held, training)


def resolved(spec: FederationSpec, source: Source) -> Any:
    """Return the settings with the questions that can be asked, and the checksum of the updates.

    Raises:
        InputError: an update does not fit the model, or a question cannot be asked.
    """
    prepared = prepare(spec, source)
    for one in prepared.kept.updates:
        one.update(prepared.task.model, prepared.training)
    asked, reasons = spec.ask or ASKS, {}
    for ask in asked:
        try:
            _check(ask, prepared)
        except InputError as error:
            if spec.ask or (ask == PROPERTY and spec.secret is not None):
                raise
            reasons[ask] = str(error)
    able = tuple(ask for ask in asked if ask not in reasons)
    why = [f"{plain_word(ask)}: {reason}" for ask, reason in reasons.items()]
    require(len(able) > 0, "; ".join(why))
    secret = _secret(prepared) if PROPERTY in able else spec.secret
    return replace(spec, ask=able, secret=secret, files=prepared.kept.fingerprint)


def not_asked(prepared: Prepared) -> dict[str, str]:
    """Return why a question is not asked, by the question."""
    found = {}
    for ask in ASKS:
        if ask not in prepared.spec.ask:
            try:
                _check(ask, prepared)
                found[ask] = "it was not asked"
            except InputError as error:
                found[ask] = str(error)
    return found


def count_of(prepared: Prepared, one: KeptUpdate) -> int:
    """Return how many records a search looks for in an update.

    Raises:
        InputError: it is not known how many there are.
    """
    if prepared.spec.images is not None:
        return prepared.spec.images
    if one.examples is None:
        raise InputError(f"{one.name}: the client does not say its records; give --images")
    return min(one.examples, IMAGES)


def _check(ask: str, prepared: Prepared) -> None:
    checks = {
        RECONSTRUCTION: _check_reconstruction,
        MEMBERSHIP: _check_membership,
        PROPERTY: _check_property,
    }
    checks[ask](prepared)


def _check_reconstruction(prepared: Prepared) -> None:
    for one in prepared.kept.updates:
        count_of(prepared, one)
        require(
            prepared.known(one).lr is not None,
            f"{one.name}: nothing that was kept tells the clients' learning rate; give --local-lr",
        )
        if prepared.spec.simulate:
            _check_steps(prepared, one)
    require(
        not prepared.data.y.is_floating_point(),
        "labels are numbers, which no search infers from an update",
    )


def _check_steps(prepared: Prepared, one: KeptUpdate) -> None:
    update = one.update(prepared.task.model, prepared.training)
    try:
        local_steps(update, count_of(prepared, one))
    except InputError as error:
        raise InputError(f"{one.name}: {error}") from error


def _check_membership(prepared: Prepared) -> None:
    require(
        len(prepared.held) > 0,
        f"the task's records do not say whose they are; add a secret {CLIENT!r} to its Dataset: 0 "
        "for records that no client has, 1 for those of the first kept client, and so on "
        f"({_listed(prepared)})",
    )
    asked = [name for name in prepared.kept.clients if name in prepared.held]
    fewest = min([len(prepared.public), *(len(prepared.held[name]) for name in asked)])
    require(
        len(asked) > 0 and fewest >= FEWEST,
        f"membership needs {FEWEST} records of a client and {FEWEST} of nobody; bring more",
    )


def _check_property(prepared: Prepared) -> None:
    secret = _secret(prepared)
    codes = prepared.data.secrets[secret][prepared.public]
    fewest = int(torch.bincount(codes, minlength=2).min())
    for one in prepared.kept.updates:
        size = one.examples or prepared.spec.images or 1
        needed = FOLDS * max(2, -(-CLIENTS // FOLDS)) * size
        require(
            fewest >= needed,
            f"{one.name}: to judge {secret!r} by simulated clients of {size} records that share "
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
            f"{one.name}: to simulate clients, nothing that was kept says enough; give "
            f"{', '.join(missing)}",
        )


def _secret(prepared: Prepared) -> str:
    """The property that is asked about."""
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


def _owners(data: Dataset, kept: Kept) -> tuple[Tensor, dict[str, Tensor]]:
    """Rows of records that no client has, and of each client's."""
    if CLIENT not in data.secrets:
        return torch.arange(len(data), device=data.x.device), {}
    codes = data.secrets[CLIENT]
    require(
        int(codes.max()) <= len(kept.clients),
        f"the secret {CLIENT!r} of the task's Dataset names client number {int(codes.max())}; "
        f"{len(kept.clients)} were kept ({', '.join(kept.clients)})",
    )
    public = (codes == 0).nonzero().flatten()
    require(
        len(public) > 0,
        f"every record of the task's Dataset is some client's (secret {CLIENT!r} is never 0); add "
        "records that no client has",
    )
    rows = {
        name: (codes == number).nonzero().flatten()
        for number, name in enumerate(kept.clients, start=1)
    }
    return public, {name: one for name, one in rows.items() if len(one) > 0}


def _listed(prepared: Prepared) -> str:
    names = prepared.kept.clients
    return ", ".join(f"{number}: {name}" for number, name in enumerate(names[:6], start=1))
