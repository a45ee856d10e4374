"""The records that an attempt rebuilt, with their scores; as arrays they survive a kill."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from leakgauge.inversion.metrics.table import PSNR
from leakgauge.inversion.words import NEAREST
from leakgauge.runs.parts import Kept

Curve = tuple[tuple[float, float], ...]
"""Points (iteration, mean over the records)."""

Scores = Mapping[str, Tensor]
"""Scores by metric, one per record ``[N]``."""


@dataclass(frozen=True, eq=False)
class Rebuilt:
    """Records that one attempt rebuilt, with the true ones and the scores.

    Attributes:
        x: rebuilt records ``[N, ...]`` in the truth's order: images with pixels from 0 to 1, or
            encoded rows of a table; empty where no record may be kept.
        truth: as ``x``, in the same units.
        scores: scores by metric, one per record ``[N]`` (one per update for ``label_accuracy``).
        curves: ``loss`` and ``psnr`` over the iterations, means over the records.
        seconds_per_iteration: time of an iteration of all records together, in seconds.
        warnings: why an update may not mean a gradient.
        chance: score of a guess that uses no gradient, by metric.
        baselines: scores of guesses that use no gradient, by name.
        rounds: scores of single epochs ``{epoch: {metric: [N]}}``; epochs count from 1.
        count: N; it stays where no record may be kept.
        confidence: how sure the method is of each cell of a table ``[N, C]``, from 0 to 1; None for
            a method that does not say, and where no record may be kept.
        layer: name of the layer whose inputs were recovered in place of records; else empty.
        singled_out: for each record the p value that it fits the rebuilt ones no better than public
            records do, the excess of its score, the number of these and that of its update, float64
            ``[4, N]``; None where it was not computed.
    """

    x: Tensor
    truth: Tensor
    scores: Scores
    curves: Mapping[str, Curve]
    seconds_per_iteration: float
    warnings: tuple[str, ...] = ()
    chance: Mapping[str, float] = field(default_factory=dict)
    baselines: Mapping[str, Scores] = field(default_factory=dict)
    rounds: Mapping[int, Scores] = field(default_factory=dict)
    count: int = -1
    confidence: Tensor | None = None
    layer: str = ""
    singled_out: Tensor | None = None

    def __post_init__(self) -> None:
        if self.count < 0:
            object.__setattr__(self, "count", len(self.truth))

    @property
    def best_guess(self) -> str | None:
        """The guess that an attacker can make and that has the highest mean PSNR.

        Which one it is is seen by the truth; that favours the guess, not the attack. None where
        nothing has a PSNR.
        """
        means = {
            name: float(scores[PSNR].double().mean())
            for name, scores in self.baselines.items()
            if name != NEAREST and PSNR in scores
        }
        return max(means, key=lambda name: means[name], default=None)

    @property
    def gain(self) -> Tensor | None:
        """PSNR of each record above that of its best guess ``[N]``, in dB."""
        best = self.best_guess
        if best is None or PSNR not in self.scores:
            return None
        return self.scores[PSNR].cpu() - self.baselines[best][PSNR].cpu()

    def redacted(self) -> "Rebuilt":
        """Return the same scores without any record."""
        return replace(self, x=self.x[:0], truth=self.truth[:0], confidence=None)

    def to_arrays(self) -> Kept:
        """Return all of it as arrays and plain values."""
        sets = ((None, self.scores), *self.rounds.items(), *self.baselines.items())
        figures = [(of, name, values) for of, scores in sets for name, values in scores.items()]
        # A column's name may hold what a file's name may not.
        arrays = {"x": self.x, "truth": self.truth}
        for name in ("confidence", "singled_out"):
            if (one := getattr(self, name)) is not None:
                arrays[name] = one
        arrays |= {f"figure-{at}": values for at, (_, _, values) in enumerate(figures)}
        plain = {
            "figures": [[of, name] for of, name, _ in figures],
            "curves": {name: list(map(list, curve)) for name, curve in self.curves.items()},
            "seconds_per_iteration": self.seconds_per_iteration,
            "warnings": list(self.warnings),
            "chance": dict(self.chance),
            "count": self.count,
            "layer": self.layer,
        }
        return {name: leaf.detach().cpu().numpy() for name, leaf in arrays.items()}, plain

    @classmethod
    def from_arrays(cls, kept: Kept) -> "Rebuilt":
        """Return what ``to_arrays`` gave; its tensors are on the CPU."""
        arrays, plain = kept
        tensors = {name: torch.from_numpy(np.asarray(leaf)) for name, leaf in arrays.items()}
        sets: dict[int | str | None, dict[str, Tensor]] = {None: {}}
        for at, (of, name) in enumerate(plain["figures"]):
            sets.setdefault(of, {})[name] = tensors[f"figure-{at}"]
        return cls(
            x=tensors["x"],
            truth=tensors["truth"],
            scores=sets[None],
            curves={
                name: tuple((float(at), float(value)) for at, value in curve)
                for name, curve in plain["curves"].items()
            },
            seconds_per_iteration=plain["seconds_per_iteration"],
            warnings=tuple(plain["warnings"]),
            chance=plain["chance"],
            baselines={name: one for name, one in sets.items() if isinstance(name, str)},
            rounds={at: one for at, one in sets.items() if isinstance(at, int)},
            count=plain["count"],
            confidence=tensors.get("confidence"),
            layer=plain["layer"],
            singled_out=tensors.get("singled_out"),
        )
