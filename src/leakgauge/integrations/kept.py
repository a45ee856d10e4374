"""Keeps the updates of chosen rounds of a real federation in a folder.

The folder is the same for every framework, and any process may write to it::

    run.txt                           identity of the federation's run; others are in runs/RUN
    models/SHA.safetensors            what the server sent; equal models share a file
    rounds/0003/CLIENT.safetensors    what the client sent back: weights, or their change
    rounds/0003/CLIENT.yaml           sealed: round, client, checksums, examples, metrics, settings

The YAML file is written last and atomically, so an incomplete update has none.
"""

import hashlib
import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock
from torch import Tensor

from leakgauge.core.checks import InputError, require, require_choice, require_count
from leakgauge.core.files import replacing, write_yaml
from leakgauge.core.memory import in_words, read_size
from leakgauge.integrations.arrays import bytes_of
from leakgauge.integrations.kept_file import FORMAT, KeptBase
from leakgauge.integrations.training_settings import LocalTraining, numbers

LOG = logging.getLogger("leakgauge")

MODELS, ROUNDS = "models", "rounds"
RUN, RUNS = "run.txt", "runs"
"""File with the identity of a folder's run, and folder of other runs."""

CLIENT, SERVER = SEEN = ("client", "server")
KINDS = ("weights", "change")

MOST = "2GB"
"""Default of the largest size of a folder of kept updates."""

_announced: set[Path] = set()
"""Folders that the log of this process has named."""

LONGEST = 80
"""Largest length of a client's file name without its ending, in characters."""


@dataclass(frozen=True, eq=False)
class Exchange:
    """What a server sent to a client in one round, and what came back.

    Attributes:
        number: number of the round, from 1.
        client: its name.
        before: the tensors that it received, by name; leaf ``[*p]``.
        after: the tensors that it sent.
        kind: ``"weights"``, or the ``"change"`` of the weights, after minus before.
        examples: number of its training records; None if unknown.
        metrics: other numbers that it sent.
        config: numbers that it received.
        source: the framework.
        seen: side that keeps the update, ``"client"`` or ``"server"``.
        run: identity of the federation's run; empty if the framework has none.
        base: checksum of the parameters that the client has and does not send, as of
            ``kept_base.base_of``; None if unknown.
        beside: names of other records of arrays that it sent, such as SCAFFOLD's control variates;
            their arrays are not kept.

    Raises:
        InputError: kind or side are unknown, a count is not above 0, or no tensor came.
    """

    number: int
    client: str
    before: Mapping[str, Tensor]
    after: Mapping[str, Tensor]
    kind: str = KINDS[0]
    examples: int | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    source: str = "other"
    seen: str = CLIENT
    run: str = ""
    base: KeptBase | None = None
    beside: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_count(self.number, "number of the round")
        require_choice(self.kind, "kind of update", KINDS)
        require_choice(self.seen, "place where updates are seen", SEEN)
        require(bool(self.client), "a client has no name; give one, such as '0'")
        for side, tensors in (("received", self.before), ("sent", self.after)):
            require(
                len(tensors) > 0,
                f"round {self.number}, client {self.client}: not kept, since it {side} no array of "
                "numbers",
            )
        if self.examples is not None:
            require_count(self.examples, "number of examples")


@dataclass(frozen=True)
class Keeper:
    """Keeps updates in a folder, up to a size; a repeated round replaces its earlier updates.

    Updates of another run go to a folder of their own, ``runs/RUN``. The log names the folder when
    it is first used.

    Attributes:
        folder: for the updates; made on first use. A relative one is made absolute at once, since
            frameworks change the working folder.
        rounds: numbers of the rounds to keep; None for all.
        max_size: largest size of the folder, in words; further updates are left out.
        training: settings of clients that neither their messages nor their configuration name.

    Raises:
        InputError: a round is not above 0, or the size cannot be read.

    >>> Keeper("kept", rounds=[1, 5]).wants(5), Keeper("kept", rounds=[1, 5]).wants(2)
    (True, False)
    """

    folder: Path | str
    rounds: Collection[int] | None = None
    max_size: str = MOST
    training: LocalTraining = field(default_factory=LocalTraining)

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder).expanduser().absolute())
        for number in self.rounds or ():
            require_count(number, "number of a round to keep")
        read_size(self.max_size)

    @property
    def path(self) -> Path:
        """The folder."""
        return Path(self.folder)

    def wants(self, number: int) -> bool:
        """Return whether updates of a round are kept."""
        return self.rounds is None or number in self.rounds

    def keep(self, sent: Exchange) -> Path | None:
        """Keep an update of a chosen round.

        Returns:
            Its YAML file; None where the round is not among the chosen ones.

        Raises:
            InputError: the folder is full, or cannot be written.
        """
        if not self.wants(sent.number):
            return None
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with FileLock(self.path / ".lock"):  # clients of a simulation share a folder
                return self._keep(sent)
        except OSError as error:
            raise InputError(
                f"{str(self.path)!r} cannot be written ({error}); choose another folder"
            ) from error

    def _keep(self, sent: Exchange) -> Path:
        for part in self.path.rglob(".*.part"):  # of a killed process
            part.unlink(missing_ok=True)
        before, after = bytes_of(sent.before), bytes_of(sent.after)
        home = self._home(sent.run)
        stem = home / ROUNDS / f"{sent.number:04d}" / file_name(sent.client)
        model = home / MODELS / f"{checksum(before)[:32]}.safetensors"
        update, about = (
            stem.with_name(f"{stem.name}.{ending}") for ending in ("safetensors", "yaml")
        )
        added = len(after) + (0 if model.is_file() else len(before))
        freed = update.stat().st_size if update.is_file() else 0
        self._refuse_full(added - freed, sent)
        about.unlink(missing_ok=True)  # while the tensors change, nothing is kept
        for path, content in ((model, before), (update, after)):
            with replacing(path) as part:
                part.write_bytes(content)
        write_yaml(about, self._about(sent, model.name, before, after))
        return about

    def _home(self, run: str) -> Path:
        """Return the folder of a run: this one, if it is empty or of the same run."""
        file, home = self.path / RUN, self.path
        if run:
            first = file.read_text("utf-8") if file.is_file() else ""
            if not first and not (self.path / ROUNDS).is_dir():
                with replacing(file) as part:
                    part.write_text(run, encoding="utf-8")
            elif first != run:
                home = self.path / RUNS / file_name(run)
        if home not in _announced:
            _announced.add(home)
            LOG.warning("updates of this federation are kept in %s", home)
        return home

    def _about(self, sent: Exchange, model: str, before: bytes, after: bytes) -> dict[str, Any]:
        found = LocalTraining.found_in(sent.config)
        return {
            "format": FORMAT,
            "round": sent.number,
            "client": sent.client,
            "source": sent.source,
            "seen": sent.seen,
            "run": sent.run,
            "kind": sent.kind,
            "model": {"file": model, "sha256": checksum(before)},
            "update": {"sha256": checksum(after), "bytes": len(after)},
            "examples": sent.examples,
            "beside": list(sent.beside),
            "metrics": numbers(sent.metrics),
            "config": numbers(sent.config),
            "training": asdict(found.updated(self.training)),
            "base": None if sent.base is None else sent.base.model_dump(),
        }

    def _refuse_full(self, more: int, sent: Exchange) -> None:
        most = read_size(self.max_size)
        held = sum(path.stat().st_size for path in self.path.rglob("*.safetensors"))
        require(
            held + more <= most,
            f"round {sent.number}, client {sent.client}: not kept, since {str(self.path)!r} holds "
            f"{in_words(held)} and its limit is {in_words(most)}; raise max_size, or keep fewer "
            "rounds",
        )


def file_name(client: str) -> str:
    """Return the name of a client's files, without their ending; no two clients share one.

    >>> file_name("site-1"), file_name("../a b")
    ('site-1', '-a-b=2c2c791a')
    """
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", client).lstrip(".")
    if safe == client and len(safe) <= LONGEST:
        return safe
    return f"{safe[: LONGEST - 9]}={checksum(client.encode())[:8]}"


def checksum(content: bytes) -> str:
    """Return the sha256 of a file's content, in hex."""
    return hashlib.sha256(content).hexdigest()
