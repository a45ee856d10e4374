"""The folder of a cell that is being played: checkpoints that survive a kill."""

import json
import re
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leakgauge.core.checks import InputError
from leakgauge.core.files import read_yaml, replacing, write_yaml

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from leakgauge.results.measurements import Run

    Arrays = Mapping[str, NDArray[Any]]

ABOUT = "about"
"""The array that holds the plain values of a checkpoint, as JSON."""


class WorkFolder:
    """Checkpoints by name, each written whole or not at all; a damaged one counts as missing.

    Attributes:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

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
        about = self.path / "made-by.yaml"
        plain = json.loads(json.dumps(asdict(run)))
        try:
            same = read_yaml(about) == plain
        except InputError:
            same = False
        if not same:
            shutil.rmtree(self.path / "checkpoints", ignore_errors=True)
            write_yaml(about, plain)
        shutil.rmtree(self.path / "finished", ignore_errors=True)  # half of what a kill left

    def tensors(self, name: str, *, like: "Mapping[str, Tensor]") -> "dict[str, Tensor] | None":
        """Return kept tensors in the order and on the devices of ``like``, or None."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            stored = load_file(self._path(name, "safetensors"))
            return {key: stored[key].to(leaf.device) for key, leaf in like.items()}
        except (OSError, KeyError, ValueError, SafetensorError):
            return None

    def keep_tensors(self, name: str, tensors: "Mapping[str, Tensor]") -> None:
        """Keep tensors by name."""
        from safetensors.torch import save_file

        with replacing(self._path(name, "safetensors")) as part:
            save_file({key: leaf.cpu().contiguous() for key, leaf in tensors.items()}, part)

    def arrays(self, name: str) -> "tuple[dict[str, NDArray[Any]], dict[str, Any]] | None":
        """Return kept arrays and the plain values beside them, or None."""
        import numpy as np

        try:
            with np.load(self._path(name, "npz"), allow_pickle=False) as stored:
                arrays = {key: stored[key] for key in stored}
            about: dict[str, Any] = json.loads(str(arrays.pop(ABOUT)))
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
            return None
        return arrays, about

    def keep_arrays(self, name: str, arrays: "Arrays", about: Mapping[str, Any]) -> None:
        """Keep arrays by name, and plain values beside them."""
        import numpy as np

        with replacing(self._path(name, "npz")) as part, part.open("wb") as file:
            np.savez(file, **{ABOUT: np.array(json.dumps(about)), **arrays})  # type: ignore[arg-type]

    def _path(self, name: str, kind: str) -> Path:
        # Systems disagree on what a file's name may hold.
        parts = [re.sub(r"[^A-Za-z0-9.=_-]+", "-", part) for part in name.split("/")]
        return self.path.joinpath("checkpoints", *parts).with_name(f"{parts[-1]}.{kind}")
