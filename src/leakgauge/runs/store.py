"""A run's folder: claimed once, survives a kill.

Every file is written whole or not at all, so whatever is found is finished. ``run.yaml`` says
which run the folder holds; a run with other settings, data or versions is refused.
"""

import json
import os
import re
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from leakgauge.core.checks import InputError, require
from leakgauge.core.types import Params
from leakgauge.inference.adversaries.calibration import HeldOut
from leakgauge.inference.run import Played
from leakgauge.results.measurements import RUN_FILE, Run, read_run, write_run

UNIDENTIFYING = frozenset({"table"})
"""Settings that do not change what a run finds: where the file lies; its fingerprint counts."""

UNREADABLE = (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, SafetensorError)
"""A file that is missing or damaged is computed anew."""


class RunFolder:
    """The folder of one run.

    Attributes:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def claim(cls, path: Path, run: Run) -> "RunFolder":
        """Take a new or empty folder, or go on in one that holds this very run.

        Raises:
            InputError: the folder cannot be written, or holds something else.
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
            probe = path / f".probe.{os.getpid()}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise InputError(
                f"cannot write to {str(path)!r} ({error.strerror}); choose another --out"
            ) from error
        if (path / RUN_FILE).exists():
            difference = first_difference(_identity(read_run(path)), _identity(run))
            require(
                difference is None,
                f"{str(path)!r} holds another run ({difference}); choose another --out",
            )
        else:
            found = sorted(child.name for child in path.iterdir() if not child.name.startswith("."))
            require(
                not found,
                f"{str(path)!r} holds other files ({', '.join(found[:3])}) and no run; choose "
                "another --out",
            )
            write_run(path, run)
        return cls(path)

    def params(self, name: str, number: int, *, like: Params) -> dict[str, Tensor] | None:
        """The parameters at the start of round ``number``, if they were kept.

        In the order and on the devices of ``like``: the file keeps neither.
        """
        try:
            stored = load_file(self._params(name, number))
            return {key: stored[key].to(leaf.device) for key, leaf in like.items()}
        except UNREADABLE:
            return None

    def keep_params(self, name: str, number: int, params: Params) -> None:
        """Keep the parameters at the start of round ``number``."""
        path = self._params(name, number)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = _part(path)
        save_file({key: leaf.cpu().contiguous() for key, leaf in params.items()}, part)
        os.replace(part, path)

    def played(self, name: str, number: int) -> Played | None:
        """What the adversaries said of round ``number``, if it was finished."""
        try:
            with np.load(self._round(name, number), allow_pickle=False) as stored:
                told = json.loads(str(stored["told"]))
                said = {key: stored[f"said/{key}"] for key in told["details"]}
                held_out = {
                    key: HeldOut(stored[f"held/{key}"], stored[f"held secret/{key}"])
                    for key in told["held_out"]
                }
        except UNREADABLE:
            return None
        return Played(said, told["details"], told["seconds"], held_out)

    def keep_played(self, name: str, number: int, played: Played) -> None:
        """Keep a finished round."""
        path = self._round(name, number)
        path.parent.mkdir(parents=True, exist_ok=True)
        told = {
            "details": dict(played.details),
            "seconds": dict(played.seconds),
            "held_out": list(played.held_out),
        }
        arrays = {"told": np.array(json.dumps(told))}
        arrays |= {f"said/{key}": array for key, array in played.log_posterior.items()}
        for key, held_out in played.held_out.items():
            arrays |= {f"held/{key}": held_out.log_odds, f"held secret/{key}": held_out.secret}
        _save(path, arrays)

    def jointly(self, name: str) -> dict[str, NDArray[np.float64]] | None:
        """What those said who judged all rounds at once, if they did."""
        try:
            with np.load(self._jointly(name), allow_pickle=False) as stored:
                return {key: stored[key] for key in stored}
        except UNREADABLE:
            return None

    def keep_jointly(self, name: str, said: Mapping[str, NDArray[np.float64]]) -> None:
        """Keep what was said of all rounds at once."""
        _save(self._jointly(name), said)

    def _params(self, name: str, number: int) -> Path:
        return self.path / "rounds" / _folder(name) / f"params-{number:04d}.safetensors"

    def _round(self, name: str, number: int) -> Path:
        return self.path / "rounds" / _folder(name) / f"said-{number:04d}.npz"

    def _jointly(self, name: str) -> Path:
        return self.path / "rounds" / _folder(name) / "jointly.npz"


def _save(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    part = _part(path)
    with part.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    os.replace(part, path)


def _folder(name: str) -> str:
    """A stage's name as a folder's: what systems disagree on is replaced."""
    return re.sub(r"[^A-Za-z0-9.=_-]+", "-", name)


def _part(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def _identity(run: Run) -> dict[str, Any]:
    settings = {k: v for k, v in run.settings.items() if k not in UNIDENTIFYING}
    plain = replace(run, settings=settings)
    parts = {"settings": plain.settings, "data": plain.data, "versions": plain.versions}
    whole: dict[str, Any] = json.loads(json.dumps(parts))
    return whole


def first_difference(there: Any, here: Any, where: str = "") -> str | None:
    """The first place at which two plain values differ, in words.

    >>> first_difference({"seed": 0}, {"seed": 1})
    'seed is 0 there, 1 here'
    """
    if isinstance(there, dict) and isinstance(here, dict):
        for key in [*there, *(key for key in here if key not in there)]:
            found = first_difference(there.get(key), here.get(key), str(key))
            if found:
                return found
        return None
    return None if there == here else f"{where} is {there!r} there, {here!r} here"
