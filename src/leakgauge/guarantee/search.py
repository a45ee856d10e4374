"""Searches for a canary: among values that occur in the data, and by gradient ascent."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from leakgauge.core.checks import require, require_choice, require_count, require_positive
from leakgauge.core.types import Column, Dataset, Params, Task
from leakgauge.gradients import check_vectorisable
from leakgauge.gradients.flattening import flatten
from leakgauge.gradients.probing import private, trainable
from leakgauge.gradients.vectorising import gradient_function
from leakgauge.guarantee.pair import Attribute
from leakgauge.guarantee.spec import BOX, Domain
from leakgauge.runs.checkpoint import Checkpoint, restore_optimizer

Distance = Literal["clipped", "cosine"]


@dataclass(frozen=True, eq=False)
class VersionDistance:
    """Distances between gradients of a record's versions, differentiable in the record.

    Attributes:
        flat: ``(x [n, F], y [n]) -> gradients [n, D]``.
        attribute: attribute that differs between the versions.
        clip: clip of the audited mechanism.
    """

    flat: Callable[[Tensor, Tensor], Tensor]
    attribute: Attribute
    clip: float

    def measure(self, x: Tensor, y: Tensor, distance: Distance) -> Tensor:
        """Return the distances ``[n]`` of the records ``x [n, F]`` with labels ``y [n]``.

        ``"clipped"`` is the norm of the difference after clipping. The paper maximises the mean
        squared error of the clipped gradients, which is the square of that norm over the number of
        coordinates: both have the same maxima. ``"cosine"`` is one minus the cosine, which the
        paper tried too and found worse; clipping does not change it.

        With several new values, ``"clipped"`` is the root mean square over them, and ``"cosine"``
        the mean.

        References:
            Li et al., CCS 2024, section 7.
        """
        versions = self.attribute.versions(x)  # [n, m, F]
        each = versions.shape[1]
        flat = self.flat(versions.flatten(0, 1), y.repeat_interleave(each))
        flat = flat.reshape(len(x), each, -1)
        lengths = _lengths(flat)
        if distance == "cosine":
            units = flat / lengths[..., None]
            return (_lengths(units[:, 1:] - units[:, :1]).square() / 2).mean(dim=1)  # 1 - cosine
        clipped = flat * (self.clip / lengths).clamp(max=1)[..., None]
        apart = _lengths(clipped[:, 1:] - clipped[:, :1])
        return apart[:, 0] if each == 2 else apart.square().mean(dim=1).sqrt()


def version_distance(
    task: Task, params: Params, attribute: Attribute, x: Tensor, y: Tensor, *, clip: float
) -> VersionDistance:
    """Return the distances for a task, after a trial on the records ``x [n, F]``, ``y [n]``.

    Args:
        task: the model and its loss.
        params: all trainable parameters by name.
        attribute: attribute that differs between the versions.
        x: features of a few records.
        y: their labels.
        clip: clip of the audited mechanism.

    Raises:
        InputError: the model's gradients cannot be vectorised.
    """
    require_positive(clip, "clip")
    check_vectorisable(task, x, y)
    params = trainable(task.model, params)
    one = vmap(gradient_function(private(task, params)), in_dims=(None, 0, 0))

    def flat(x: Tensor, y: Tensor) -> Tensor:
        return flatten(one(params, x[:, None], y[:, None]))

    return VersionDistance(flat, attribute, clip)


def _lengths(flat: Tensor) -> Tensor:
    # The root has no slope at 0, where a record has no gradient or both versions the same one.
    tiny = torch.finfo(flat.dtype).tiny
    lengths: Tensor = flat.square().sum(dim=-1).clamp(min=tiny).sqrt()
    return lengths


@dataclass(frozen=True)
class Craft:
    """Settings of the search for a canary.

    Attributes:
        domain: allowed values of the record: each position within the range of the data
            (``"box"``); anywhere (``"free"``); or only values that occur in the data (``"valid"``).
        distance: distance to maximise: ``"clipped"``, the distance after clipping (the paper's), or
            ``"cosine"``, which the paper found worse.
        restarts: number of records to start from, for each label.
        steps: steps of gradient ascent (Adam); ``"valid"`` takes none.
        lr: learning rate of Adam, in units of the encoded features.
        sweeps: sweeps over all columns in the search among values of the data; 0 skips the search
            in ``"free"`` and ``"box"``, where it gives the ascent its starts.
        choices: largest number of values of a column to try, evenly spaced among those that
            occur.

    The search returns the record with the largest clipped distance of all starts and labels.

    Raises:
        InputError: a value is out of range, or ``"valid"`` has no sweeps.

    References:
        Li et al., CCS 2024, section 7.
    """

    domain: Domain = BOX
    distance: Distance = "clipped"
    restarts: int = 4
    steps: int = 200
    lr: float = 0.5
    sweeps: int = 2
    choices: int = 32

    def __post_init__(self) -> None:
        require_choice(self.domain, "domain", get_args(Domain))
        require_choice(self.distance, "distance", get_args(Distance))
        for name in ("restarts", "steps", "choices"):
            require_count(getattr(self, name), f"number of {name}")
        require_positive(self.lr, "lr")
        require(self.sweeps >= 0, f"number of sweeps is {self.sweeps}; expected 0 or more")
        require(
            self.sweeps > 0 or self.domain != "valid",
            "sweeps over the columns search for a valid record; expected 1 sweep or more",
        )


Block = tuple[Column, Tensor]
"""A column and its encoded values to try ``[k, stop - start]``."""


def blocks_of(data: Dataset, fixed: Column, choices: int) -> list[Block]:
    """Return the values, at most ``choices``, that occur in each column except ``fixed``."""
    assert data.schema is not None
    blocks = []
    for column in data.schema.columns:
        if column.name == fixed.name:
            continue
        values = torch.unique(data.x[:, column.start : column.stop], dim=0)
        if len(values) > choices:  # ascending, so that the ends are kept
            places = torch.linspace(0, len(values) - 1, choices).round().long()
            values = values[places.to(values.device)]
        blocks.append((column, values))
    return blocks


def search_columns(
    between: VersionDistance,
    x: Tensor,
    y: Tensor,
    blocks: list[Block],
    settings: Craft,
    rng: np.random.Generator,
    kept: Checkpoint,
) -> Tensor:
    """Return a record ``[F]`` after sweeps in which each column in turn takes its best value.

    Args:
        between: distance between the versions.
        x: the start ``[F]``.
        y: its label.
        blocks: values to try.
        settings: distance and number of sweeps.
        rng: draws the order of the columns.
        kept: keeps intermediate states; a killed search resumes from them.
    """
    state = {"sweep": 0, "left": [], "x": x, "best": -1.0, "before": -np.inf, **random_state(rng)}
    state |= kept.read() or {}
    rng.bit_generator.state = state["rng"]
    x = state["x"].to(x)
    # A sweep that gained nothing is the last one; a distance that is not a number ends none.
    while state["left"] or (
        state["sweep"] < settings.sweeps and not state["best"] <= state["before"]
    ):
        if not state["left"]:
            order = rng.permutation(len(blocks)).tolist()
            state |= {"sweep": state["sweep"] + 1, "before": state["best"], "left": order}
            continue
        x, state["best"] = _with_best_value(between, x, y, blocks[state["left"].pop(0)], settings)
        if kept.due:
            kept.keep({**state, "x": x, **random_state(rng)})
    return x


def random_state(rng: np.random.Generator) -> dict[str, Any]:
    """Return the state of a generator, for a checkpoint."""
    return {"rng": rng.bit_generator.state}


def _with_best_value(
    between: VersionDistance, x: Tensor, y: Tensor, block: Block, settings: Craft
) -> tuple[Tensor, float]:
    column, values = block
    several = x.repeat(len(values), 1)
    several[:, column.start : column.stop] = values
    with torch.no_grad():
        distances = between.measure(several, y.expand(len(values)), settings.distance)
    return several[int(distances.argmax())], float(distances.max())


def ascend(
    between: VersionDistance,
    x: Tensor,
    y: Tensor,
    data: Dataset,
    settings: Craft,
    kept: Checkpoint,
) -> Tensor:
    """Return the best point of a gradient ascent from each start ``[n, F]``.

    Args:
        between: distance between the versions; ``"clipped"`` selects the best point.
        x: the starts ``[n, F]``.
        y: their labels ``[n]``.
        data: encoded records; their range limits the box.
        settings: domain, distance, steps and learning rate.
        kept: keeps intermediate states; a killed ascent resumes from them.
    """
    low, high = data.x.amin(dim=0), data.x.amax(dim=0)
    if settings.domain == "free":
        low, high = torch.full_like(low, -torch.inf), torch.full_like(high, torch.inf)
    current = x.clone().requires_grad_()
    optimizer = torch.optim.Adam([current], lr=settings.lr, maximize=True)
    best, reached = x.clone(), torch.full((len(x),), -1.0, dtype=x.dtype, device=x.device)
    first, earlier = 0, kept.read()
    if earlier is not None:
        first = earlier["next"]
        current.data.copy_(earlier["current"])
        best.copy_(earlier["best"])
        reached.copy_(earlier["reached"])
        restore_optimizer(optimizer, earlier["adam"])
    for step in range(first, settings.steps + 1):
        with torch.no_grad():
            clipped = between.measure(current, y, "clipped")
            better = clipped > reached
            best[better], reached[better] = current[better], clipped[better]
        optimizer.zero_grad()
        # The gradient of the sum gives each start its own gradient.
        torch.autograd.backward(between.measure(current, y, settings.distance).sum())
        optimizer.step()
        with torch.no_grad():
            current.copy_(torch.minimum(torch.maximum(current, low), high))
        if kept.due:
            adam = optimizer.state_dict()["state"]
            points = {"current": current.detach(), "best": best, "reached": reached}
            kept.keep({"next": step + 1, "adam": adam, **points})
    return best.detach()
