"""Distances between the gradients of a record's two versions, as functions of the record."""

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

Distance = Literal["mse", "cosine", "clipped"]


@dataclass(frozen=True, eq=False)
class VersionDistance:
    """Distances between the gradients of both versions, differentiable in the record.

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

        ``"mse"`` is the mean squared difference of the coordinates and ``"cosine"`` one minus the
        cosine, both of the gradients before clipping (Li et al., section 7); ``"clipped"`` is the
        norm of the difference after clipping, which decides epsilon.
        """
        both = self.attribute.versions(x)  # [n, 2, F]
        flat = self.flat(both.flatten(0, 1), y.repeat_interleave(2)).reshape(len(x), 2, -1)
        if distance == "mse":
            return _lengths(flat[:, 0] - flat[:, 1]).square() / flat.shape[-1]
        lengths = _lengths(flat)
        if distance == "cosine":
            units = flat / lengths[..., None]
            return _lengths(units[:, 0] - units[:, 1]).square() / 2  # 1 - cosine
        clipped = flat * (self.clip / lengths).clamp(max=1)[..., None]
        return _lengths(clipped[:, 0] - clipped[:, 1])


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
