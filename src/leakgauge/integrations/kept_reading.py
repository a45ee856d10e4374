"""Reads the updates that a ``Keeper`` kept, as ``Update``s and ``Round``s."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from torch import nn

from leakgauge.core.checks import InputError, require, require_known
from leakgauge.integrations.kept import KINDS, MODELS, ROUNDS, RUNS
from leakgauge.integrations.kept_base import refuse_other_base
from leakgauge.integrations.kept_file import KeptBase, read_about
from leakgauge.integrations.kept_tensors import (
    Tensors,
    in_dtypes_of,
    named_as,
    read_tensors,
)
from leakgauge.integrations.training_settings import LocalTraining
from leakgauge.training.catalog import SGD
from leakgauge.training.counting import batches_counted
from leakgauge.training.federation import Round
from leakgauge.training.state import State, average, in_types_of
from leakgauge.training.update import Update


@dataclass(frozen=True, eq=False)
class KeptUpdate:
    """A kept update; its tensors are read from their files on request.

    Attributes:
        folder: folder of all kept updates.
        number: number of the round.
        client: its name.
        kind: ``"weights"`` or ``"change"``.
        examples: number of its training records; None if unknown.
        training: known settings of its training.
        metrics: other numbers that it sent.
        config: numbers that it received.
        source: the framework.
        seen: side that kept the update, ``"client"`` or ``"server"``.
        run: identity of the federation's run; empty if it has none.
        beside: names of other records of arrays that the client sent, which were not kept.
        files: path and checksum of the received and of the sent tensors.
        base: checksum of the parameters that the client did not send; None if it was not kept.
    """

    folder: Path
    number: int
    client: str
    kind: str
    examples: int | None
    training: LocalTraining
    metrics: Mapping[str, float]
    config: Mapping[str, float]
    source: str
    seen: str
    run: str
    beside: tuple[str, ...]
    files: tuple[tuple[Path, str], tuple[Path, str]]
    base: KeptBase | None = None

    @property
    def name(self) -> str:
        """Round and client in a few words."""
        return f"round {self.number}, client {self.client}"

    def tensors(self) -> tuple[Tensors, Tensors]:
        """Return the received and the sent tensors.

        Raises:
            InputError: a file is missing or damaged.
        """
        before, after = (read_tensors(path, wanted) for path, wanted in self.files)
        return before, after

    def update(self, model: nn.Module, training: LocalTraining | None = None) -> Update:
        """Return the update of the model's trainable parameters.

        Args:
            model: model of the client. Tensors without names, as of Flower's ``NumPyClient``, are
                in the order of its state dict.
            training: settings that replace the kept ones.

        Raises:
            InputError: the update does not fit the model, its settings disagree, or the model's
                other parameters are not those that the client had.
        """
        known = self.training.updated(training or LocalTraining())
        before, after = (named_as(tensors, model, self.name) for tensors in self.tensors())
        change = after
        if self.kind == KINDS[1]:
            moved = {name: before[name] + leaf for name, leaf in after.items() if name in before}
            after = {**before, **moved}  # of frozen tensors and statistics no change is sent
        steps = known.steps_over(self.examples)
        size = known.batch_size if steps is not None else None
        steps = steps or batches_counted(before, after)
        if size is not None and self.examples is not None:
            size = min(size, self.examples)
        try:
            update = Update.from_state_dicts(
                before,
                after,
                lr=known.lr,
                steps=steps or 1,
                batch_size=size,
                records=self.examples,
                model=model,
                optimizer=known.named_optimizer or SGD,
            )
            if self.kind == KINDS[1] and all(name in change for name in update.before):
                exact = {name: change[name] for name in update.before}
                update = replace(update, kind="change", values=exact)
        except InputError as error:
            raise InputError(f"{self.name}: {error}") from error
        refuse_other_base(self.base, model, {*update.before, *update.held}, self.name)
        return in_dtypes_of(model, update)


@dataclass(frozen=True)
class KeptRounds:
    """All kept updates of one federation, by round and client.

    Attributes:
        folders: folders of the updates.
        updates: in the order of rounds, then of clients.
    """

    folders: tuple[Path, ...]
    updates: tuple[KeptUpdate, ...]

    @property
    def rounds(self) -> list[int]:
        """The numbers of the rounds, ascending."""
        return sorted({one.number for one in self.updates})

    @property
    def clients(self) -> list[str]:
        """The names of the clients, in their order."""
        return sorted({one.client for one in self.updates}, key=_order)

    @property
    def fingerprint(self) -> str:
        """The sha256 of all checksums and settings."""
        lines = [
            repr((one.number, one.client, one.kind, one.examples, one.training, one.files[0][1]))
            + repr((one.metrics, one.config, one.source, one.seen, one.base, one.beside))
            + one.files[1][1]
            for one in self.updates
        ]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def only(self, rounds: Sequence[int] = (), clients: Sequence[str] = ()) -> "KeptRounds":
        """Return the updates of some rounds and clients; an empty sequence selects all.

        Raises:
            InputError: a round or a client is not among them.
        """
        for one in rounds:
            require(
                one in self.rounds,
                f"round {one} was not kept; there are {', '.join(map(str, self.rounds))}",
            )
        for client in clients:
            require_known(client, self.clients, f"no client {client!r} was kept")
        chosen = tuple(
            one
            for one in self.updates
            if (not rounds or one.number in rounds) and (not clients or one.client in clients)
        )
        require(len(chosen) > 0, "no kept update is of these rounds and of these clients")
        return KeptRounds(self.folders, chosen)

    def round(self, number: int, model: nn.Module, training: LocalTraining | None = None) -> Round:
        """Return a round in the form of ``federation``; clients have their position in ``clients``.

        The state after it is the server's model of the next round, if that was kept, or else
        the mean of the uploads, weighted by examples, as in FedAvg.

        Args:
            number: number of the round.
            model: model of the clients.
            training: as for ``KeptUpdate.update``.

        Raises:
            InputError: the round was not kept, or does not fit the model.
        """
        at = {name: position for position, name in enumerate(self.clients)}
        here = {at[one.client]: one for one in self.only(rounds=[number]).updates}
        received = {who: _received(one, model) for who, one in here.items()}
        sent = {who: one.update(model, training) for who, one in here.items()}
        later = next((one for one in self.updates if one.number == number + 1), None)
        if later is None:
            uploads = [{**one.after(), **one.buffers} for one in sent.values()]
            after = average(uploads, [one.examples or 1 for one in here.values()])
        else:
            after = _received(later, model)
        return Round(number, dict(received), sent, State(after))


def _received(one: KeptUpdate, model: nn.Module) -> Tensors:
    return in_types_of(model, named_as(one.tensors()[0], model, one.name), finer=True)


def read_kept(*folders: Path | str) -> KeptRounds:
    """Return the updates that ``Keeper``s kept of one federation, in one folder or in several.

    Raises:
        InputError: there are none, the description of one is damaged, or folders hold different
            runs or the same update.
    """
    paths = tuple(map(Path, folders))
    found = [one for path in paths for one in _kept_in(path)]
    runs = dict.fromkeys(one.run for one in found)
    require(
        len(runs) == 1,
        f"{', '.join(map(str, folders))} hold updates of {len(runs)} runs "
        f"({', '.join(run or 'one without an identity' for run in runs)}); name folders of one run",
    )
    found.sort(key=lambda one: (one.number, _order(one.client)))
    for one, other in pairwise(found):
        require(
            (one.number, one.client) != (other.number, other.client),
            f"{one.name} is kept twice, as {str(one.files[1][0])!r} and "
            f"{str(other.files[1][0])!r}; remove one of them",
        )
    return KeptRounds(paths, tuple(found))


def _kept_in(path: Path) -> list[KeptUpdate]:
    require(
        path.is_dir(), f"no such folder: {str(path)!r}; expected one that keeps updates of rounds"
    )
    found = [_described(path, about) for about in sorted((path / ROUNDS).glob("*/*.yaml"))]
    require(
        len(found) > 0,
        f"{str(path)!r} keeps no update ({ROUNDS}/ROUND/CLIENT.yaml is missing); let a "
        "federation keep some first",
    )
    return found


def other_runs(kept: KeptRounds) -> list[Path]:
    """Return the folders of other runs next to the kept updates."""
    return sorted(one for path in kept.folders for one in (path / RUNS).glob("*") if one.is_dir())


def _described(folder: Path, path: Path) -> KeptUpdate:
    about = read_about(path)
    return KeptUpdate(
        folder=folder,
        number=about.round,
        client=about.client,
        kind=about.kind,
        examples=about.examples,
        training=about.known,
        metrics=about.metrics,
        config=about.config,
        source=about.source,
        seen=about.seen,
        run=about.run,
        beside=tuple(about.beside),
        files=(
            (folder / MODELS / about.model.file, about.model.sha256),
            (path.with_suffix(".safetensors"), about.update.sha256),
        ),
        base=about.base,
    )


def _order(client: str) -> tuple[int, int, str]:
    """Numbers first, by their size."""
    return (0, int(client), "") if client.isdecimal() else (1, 0, client)


def as_json(one: KeptUpdate) -> dict[str, Any]:
    """Return the description of an update as plain values."""
    return {
        "round": one.number,
        "client": one.client,
        "examples": one.examples,
        "seen": one.seen,
        "source": one.source,
    }
