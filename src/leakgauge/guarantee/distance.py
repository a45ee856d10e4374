"""Distances between the gradients of a record's versions, as functions of the record."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.func import vmap

from leakgauge.core.checks import require_choice, require_positive
from leakgauge.core.types import Params, Task
from leakgauge.gradients import check_vectorisable
from leakgauge.gradients.flattening import flatten
from leakgauge.gradients.probing import gradient_function, private, trainable
from leakgauge.guarantee.pair import Attribute

Distance = Literal["clipped", "cosine"]


@dataclass(frozen=True, eq=False)
class VersionDistance:
    """Distances between the gradients of a record's versions, differentiable in the record.

    Attributes:
        flat: ``(x [n, F], y [n]) -> gradients [n, D]``.
        attribute: what differs between the versions.
        clip: of the mechanism that is audited.
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

        The new value is random where there are several: ``"clipped"`` is then the root of the mean
        square over the new values, and ``"cosine"`` the mean.

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
        attribute: what differs between the versions.
        x: features of a few records.
        y: their labels.
        clip: of the mechanism that is audited.

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


def require_distance(value: str) -> None:
    """Refuse a word that is not the name of a distance.

    Raises:
        InputError: it is none.
    """
    require_choice(value, "distance", get_args(Distance))


def _lengths(flat: Tensor) -> Tensor:
    # The root has no slope at 0, where a record has no gradient or both versions the same one.
    tiny = torch.finfo(flat.dtype).tiny
    lengths: Tensor = flat.square().sum(dim=-1).clamp(min=tiny).sqrt()
    return lengths
