"""The folder of a running cell: checkpoints that survive a kill, and detect damage."""

import hashlib
import io
import json
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leakgauge.core.checks import InputError
from leakgauge.core.files import DamagedError, read_sealed, write_sealed

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from leakgauge.results.measurements import Run

    Arrays = Mapping[str, NDArray[Any]]

Say = Callable[[str], None]
"""Gets a note for the user."""

_MADE_BY = "made-by.json"

_LONGEST = 120
"""Characters of a file's name, at most, without its ending."""


def in_silence(text: str) -> None:
    """Drop a note."""


class WorkFolder:
    """Checkpoints by name, each written whole or not at all, sealed, and with its identity.

    The identity is the run that made it with all that it read, its name, and what it built on
    (``after``, a digest).
    One that is damaged, or whose identity is another, counts as missing, with a note.

    Attributes:
        path: the folder.
    """

    def __init__(self, path: Path, say: Say = in_silence, *, identity: str = "") -> None:
        self.path = path
        self._say = say
        self._origin = identity
        self._run = ""

    @property
    def files(self) -> Path:
        """The folder for files that the finished cell keeps; made when asked for."""
        folder = self.path / "finished"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def guard(self, run: "Run") -> None:
        """Call this before any other: it removes what cannot be used any more.

        That is files of a cell that was killed while it was written, and checkpoints that another
        description made, as another model would.
        """
        made_by = {**asdict(run), **({"identity": self._origin} if self._origin else {})}
        content = json.dumps(made_by, sort_keys=True).encode()
        self._run = hashlib.sha256(content).hexdigest()
        if self._found_by(content) is False:
            self._say(f"{str(self.path)!r} has checkpoints of another run; all are made anew")
            self.forget()
        write_sealed(self.path / _MADE_BY, content)
        shutil.rmtree(self.path / "finished", ignore_errors=True)  # half of what a kill left

    def _found_by(self, content: bytes) -> bool | None:
        """Whether this run made the checkpoints; None where that is not known, or none are."""
        if not (self.path / "checkpoints").exists():
            return None
        try:
            return read_sealed(self.path / _MADE_BY) == content
        except DamagedError as error:  # each checkpoint still says which run made it
            self._say(f"{error}; it is written anew")
            return None
        except InputError:  # a version without identities
            return False

    def tensors(
        self, name: str, *, like: "Mapping[str, Tensor]", after: str = ""
    ) -> "dict[str, Tensor] | None":
        """Return kept tensors in the order and on the devices of ``like``, or None."""
        from safetensors.torch import load

        kept = self._kept(name, "safetensors", after)
        if kept is None:
            return None
        stored = load(kept[1])
        if stored.keys() != like.keys():
            self._refuse(name, "safetensors", f"{name!r} holds other tensors")
            return None
        return {key: stored[key].to(leaf.device) for key, leaf in like.items()}

    def keep_tensors(self, name: str, tensors: "Mapping[str, Tensor]", *, after: str = "") -> None:
        """Keep tensors by name; ``after`` is the digest of what they build on."""
        self._keep(name, "safetensors", after, {}, _bytes_of(tensors))

    def arrays(
        self, name: str, *, after: str = ""
    ) -> "tuple[dict[str, NDArray[Any]], dict[str, Any]] | None":
        """Return kept arrays and plain values, or None."""
        import numpy as np

        kept = self._kept(name, "npz", after)
        if kept is None:
            return None
        about, content = kept
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            return {key: stored[key] for key in stored}, about

    def keep_arrays(
        self, name: str, arrays: "Arrays", about: Mapping[str, Any], *, after: str = ""
    ) -> None:
        """Keep arrays by name, and plain values; ``after`` as for ``keep_tensors``."""
        import numpy as np

        content = io.BytesIO()
        np.savez(content, **arrays)  # type: ignore[arg-type]
        self._keep(name, "npz", after, about, content.getvalue())

    def state(self, name: str, *, after: str = "") -> "tuple[dict[str, Tensor], Any] | None":
        """Return kept tensors on the CPU and plain values, or None."""
        from safetensors.torch import load

        kept = self._kept(name, "state", after)
        return None if kept is None else (load(kept[1]), kept[0])

    def keep_state(
        self, name: str, tensors: "Mapping[str, Tensor]", about: Any, *, after: str = ""
    ) -> None:
        """Keep tensors by name, and plain values; ``after`` as for ``keep_tensors``."""
        self._keep(name, "state", after, about, _bytes_of(tensors))

    def forget(self, name: str = "") -> None:
        """Remove the checkpoints whose names begin with ``name`` and a slash; all without one."""
        shutil.rmtree(self.path.joinpath("checkpoints", *_parts(name)), ignore_errors=True)

    def _kept(self, name: str, kind: str, after: str) -> tuple[Any, bytes] | None:
        path = self._path(name, kind)
        if not path.is_file():
            return None
        try:
            head, _, content = read_sealed(path).partition(b"\n")
        except InputError as error:
            self._refuse(name, kind, str(error))
            return None
        kept = json.loads(head)
        about = kept.pop("about")
        if kept != self._identity(name, after):
            self._refuse(name, kind, f"{str(path)!r} is of another run or another part")
            return None
        return about, content

    def _keep(self, name: str, kind: str, after: str, about: Any, content: bytes) -> None:
        head = json.dumps({**self._identity(name, after), "about": about})
        write_sealed(self._path(name, kind), head.encode() + b"\n" + content)

    def _identity(self, name: str, after: str) -> dict[str, str]:
        return {"run": self._run, "name": name, "after": after}

    def _refuse(self, name: str, kind: str, reason: str) -> None:
        self._say(f"{reason}; it is made anew, with what builds on it")
        self._path(name, kind).unlink(missing_ok=True)

    def _path(self, name: str, kind: str) -> Path:
        parts = _parts(name)
        return self.path.joinpath("checkpoints", *parts).with_name(f"{parts[-1]}.{kind}")


def elsewhere(run: "Run") -> "Run":
    """Return the run without where its data lie; their fingerprint alone changes figures."""
    settings = {name: value for name, value in run.settings.items() if name != "data"}
    return replace(run, settings=settings)


def digest_of(tensors: "Mapping[str, Tensor]") -> str:
    """Return the sha256 of tensors by name, in hex.

    >>> import torch
    >>> digest_of({"w": torch.ones(2)}) == digest_of({"w": torch.zeros(2)})
    False
    """
    return hashlib.sha256(_bytes_of(tensors)).hexdigest()


def _bytes_of(tensors: "Mapping[str, Tensor]") -> bytes:
    from safetensors.torch import save

    return save({key: leaf.detach().cpu().contiguous() for key, leaf in tensors.items()})


def _parts(name: str) -> list[str]:
    # Systems disagree on what a file's name may hold, and on how long it may be.
    safe = (re.sub(r"[^A-Za-z0-9.=_-]+", "-", part) for part in name.split("/") if part)
    return [part if len(part) <= _LONGEST else _shortened(part) for part in safe]


def _shortened(part: str) -> str:
    return f"{part[: _LONGEST - 17]}-{hashlib.sha256(part.encode()).hexdigest()[:16]}"
