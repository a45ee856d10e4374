"""Random small networks that write in place, with plain autograd on copies as the truth."""

import copy
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from leakgauge.core.types import Task

FEATURES = 4


def _subtract(x: Tensor) -> Tensor:
    return x.sub_(0.5).div_(2)


def _centre(x: Tensor) -> Tensor:
    x -= x.mean(dim=1, keepdim=True)
    return x


def _behind(x: Tensor) -> Tensor:
    x.data.mul_(3)
    return x


def _first(x: Tensor) -> Tensor:
    x[:, 0] = 1
    return x


def _flat(x: Tensor) -> Tensor:
    x.view(-1).clamp_(-1, 1)
    return x


WRITES = {
    "nothing": lambda x: x,
    "subtracts": _subtract,
    "centres": _centre,
    "writes data": _behind,
    "sets a column": _first,
    "clamps a view": _flat,
}


class Writer(nn.Module):
    """Changes its records in place, then runs a small network; may end in ``squeeze()``."""

    def __init__(self, writes: str, *, outputs: int, squeezes: str, buffer: bool) -> None:
        super().__init__()
        self.writes, self.squeezes, self.careful = writes, squeezes, False
        self.body, self.head = nn.Linear(FEATURES, 5), nn.Linear(5, outputs)
        self.act = nn.ReLU(inplace=True)
        self.seen = None
        if buffer:
            self.register_buffer("scale", torch.full((FEATURES,), 1.5))

    def forward(self, x: Tensor) -> Tensor:
        if self.careful:
            x = x.clone()
        x = WRITES[self.writes](x)
        if hasattr(self, "scale"):
            x = x * self.scale
        hidden = self.act(self.body(x))
        self.seen = hidden  # a cached output, as visualisations keep
        if self.squeezes == "middle" and not self.careful:
            hidden = hidden.squeeze()
        found = self.head(hidden)
        if self.squeezes != "end":
            return found
        if self.careful:
            return found.flatten() if found.shape[1] == 1 else found
        return found.squeeze()

    def twin(self) -> "Writer":
        """Return the same network, which copies its records and squeezes its own axes alone."""
        own = copy.deepcopy(self)
        own.careful = True
        return own


@dataclass(frozen=True)
class Case:
    """A task with records ``[n, 4]``, and copies of all that must stay unchanged."""

    task: Task
    x: Tensor
    y: Tensor

    def check_unchanged(self, before: "Case") -> None:
        assert torch.equal(self.x, before.x)
        assert torch.equal(self.y, before.y)
        assert self.task.model.seen is None
        old = before.task.model.state_dict()
        for name, leaf in self.task.model.state_dict().items():
            assert torch.equal(leaf, old[name]), name
        assert not any(one._forward_hooks for one in self.task.model.modules())

    def copied(self) -> "Case":
        model = copy.deepcopy(self.task.model)
        return Case(Task(model, self.task.loss), self.x.clone(), self.y.clone())

    def gradient(self, rows: Tensor, model: nn.Module | None = None) -> dict[str, Tensor]:
        """Return the gradient of a batch by plain autograd; a single record counts as two equal."""
        own = copy.deepcopy(self.task.model if model is None else model)
        rows = rows.repeat(2) if len(rows) == 1 else rows
        loss = self.task.loss(own(self.x[rows].clone()), self.y[rows].clone())
        loss.backward()
        return {name: leaf.grad for name, leaf in own.named_parameters()}

    def gradients(self, batches: Tensor) -> dict[str, Tensor]:
        """Return ``gradient`` of batches ``[T, B]``, stacked."""
        each = [self.gradient(rows) for rows in batches]
        return {name: torch.stack([one[name] for one in each]) for name in each[0]}


def marking(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return a mean squared error; the targets are cut in place."""
    return functional.mse_loss(outputs, targets.clamp_(-1, 1))


@st.composite
def cases(draw: st.DrawFn, *, classes: bool | None = None) -> Case:
    """Return random small networks with records and losses."""
    seed = draw(st.integers(0, 10**6))
    count = draw(st.integers(1, 5))
    classes = draw(st.booleans()) if classes is None else classes
    squeezes = draw(st.sampled_from(["no", "middle", "end"]))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Writer(
            draw(st.sampled_from(sorted(WRITES))),
            outputs=3 if classes else 1,
            squeezes=squeezes,
            buffer=draw(st.booleans()),
        ).double()
        x = torch.randn(count, FEATURES, dtype=torch.float64) * 2
        if classes:
            return Case(Task(model), x, torch.randint(3, (count,)))
        y = torch.randn(count, dtype=torch.float64) * 2
        return Case(Task(model, marking), x, y if squeezes == "end" else y[:, None])
