"""Stand-in for factors."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from leakgauge.core.types import Grads, Params, Task
from leakgauge.gradients.gradients import per_example_gradients
from leakgauge.gradients.probing import private
from leakgauge.gradients.walk import walk


@dataclass(frozen=True, eq=False)
class Outer:
    name: str
    x: Tensor
    dy: Tensor
    bias: bool

    @property
    def out(self) -> int:
        return self.dy.shape[1]

    @property
    def in_features(self) -> int:
        return self.x.shape[1]

    def norms(self, p: float = 2) -> Tensor:
        square = self.x.square().sum(1) + (1 if self.bias else 0)
        return (self.dy.square().sum(1) * square).sqrt()

    def project(self, kernels: Tensor) -> Tensor:
        return self.dy[:, :, None] * (self.x @ kernels.T)[:, None, :]

    def rows(self, index: Tensor) -> "Outer":
        return replace(self, x=self.x[index], dy=self.dy[index])

    def to(self, where: Any) -> "Outer":
        return replace(self, x=self.x.to(where), dy=self.dy.to(where))


@dataclass(frozen=True, eq=False)
class Stored:
    grads: Grads

    @property
    def _weight(self) -> Tensor:
        leaf = next(iter(self.grads.values()))
        return leaf.flatten(2) if leaf.dim() > 2 else leaf[:, None]

    @property
    def out(self) -> int:
        return self._weight.shape[1]

    @property
    def in_features(self) -> int:
        return self._weight.shape[2]

    def norms(self, p: float = 2) -> Tensor:
        return (
            torch.stack([g.flatten(1).square().sum(1) for g in self.grads.values()]).sum(0).sqrt()
        )

    def project(self, kernels: Tensor) -> Tensor:
        return self._weight @ kernels.T

    def rows(self, index: Tensor) -> "Stored":
        return Stored({k: g[index] for k, g in self.grads.items()})

    def to(self, where: Any) -> "Stored":
        return Stored({k: g.to(where) for k, g in self.grads.items()})


Factors = Outer | Stored


def factors(
    task: Task, params: Params, x: Tensor, y: Tensor, *, layers: Sequence[str] | None = None
) -> dict[str, Factors]:
    found: dict[str, Factors] = {}
    own = private(task, {k: v.detach().clone() for k, v in params.items()})
    names = [one.name for one in walk(task, x)] if layers is None else list(layers)
    caught: dict[str, Any] = {}
    linear = [n for n in names if isinstance(own.model.get_submodule(n), nn.Linear)]
    for n in linear:
        own.model.get_submodule(n).register_forward_hook(
            lambda m, i, o, n=n: caught.__setitem__(n, (i[0].detach(), o))
        )
    with torch.enable_grad():
        loss = own.mean_loss(own.model(x), y) * len(x)
    if linear and all(caught[n][0].dim() == 2 for n in linear):
        dys = torch.autograd.grad(loss, [caught[n][1] for n in linear])
        for n, dy in zip(linear, dys, strict=True):
            found[n] = Outer(n, caught[n][0], dy, own.model.get_submodule(n).bias is not None)
    rest = [n for n in names if n not in found]
    if rest:
        grads = per_example_gradients(task, params, x, y)
        for n in rest:
            pre = f"{n}." if n else ""
            found[n] = Stored(
                {k: g for k, g in grads.items() if k.startswith(pre) and "." not in k[len(pre) :]}
            )
    return {n: found[n] for n in names}
