"""The state of a federation: the shared model and those of isolated participants, by name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from leakgauge.core.checks import require, require_known
from leakgauge.core.types import Params, Task, all_finite, require_plain
from leakgauge.gradients import params_of
from leakgauge.gradients.probing import fresh_buffers, private

Tensors = Mapping[str, Tensor]
"""A model's trainable parameters, then its buffers, by name; each value is ``[*p]``."""

_SHARED, _OWN = "shared", "participant"


@dataclass(frozen=True, eq=False)
class State:
    """State of a federation after a round, which determines the next one.

    Attributes:
        shared: parameters and buffers of the shared model.
        own: models of the isolated participants, by position. Others start from the shared model.

    >>> list(State.of(nn.BatchNorm1d(2)).shared)
    ['weight', 'bias', 'running_mean', 'running_var', 'num_batches_tracked']
    """

    shared: Tensors
    own: Mapping[int, Tensors] = field(default_factory=dict)

    @classmethod
    def of(cls, model: nn.Module) -> "State":
        """Return the state before the first round: copies of the model's tensors."""
        return cls(tensors_of(Task(model)))

    def flat(self) -> dict[str, Tensor]:
        """Return all tensors under one name each, as files of checkpoints hold them."""
        kept = {f"{_SHARED}/{name}": leaf for name, leaf in self.shared.items()}
        for position, tensors in self.own.items():
            kept |= {f"{_OWN}/{position}/{name}": leaf for name, leaf in tensors.items()}
        return kept

    @classmethod
    def from_flat(cls, kept: Mapping[str, Tensor]) -> "State":
        """Return the state that ``flat`` named.

        Raises:
            InputError: ``flat`` does not return such a name.

        >>> start = State.of(nn.Linear(2, 1)).shared
        >>> list(State(start, {3: start}).flat())
        ['shared/weight', 'shared/bias', 'participant/3/weight', 'participant/3/bias']
        >>> list(State.from_flat(State(start, {3: start}).flat()).own)
        [3]
        """
        shared: dict[str, Tensor] = {}
        own: dict[int, dict[str, Tensor]] = {}
        for key, leaf in kept.items():
            owner, _, name = key.partition("/")
            if owner == _SHARED:
                shared[name] = leaf
                continue
            position, _, name = name.partition("/")
            require(
                owner == _OWN and position.isdecimal() and bool(name),
                f"{key!r} is not a tensor of a federation; pass what State.flat returned",
            )
            own.setdefault(int(position), {})[name] = leaf
        return cls(shared, own)


def tensors_of(task: Task) -> dict[str, Tensor]:
    """Return copies of the model's trainable parameters, then of its buffers."""
    return {**params_of(task.model), **fresh_buffers(task)}


def working_copy(task: Task, tensors: Tensors) -> tuple[Task, dict[str, Tensor]]:
    """Return the task on a copy of its model that holds the tensors, and its parameters.

    Args:
        task: the model and its loss; the module is not changed.
        tensors: parameters and buffers; the model supplies buffers that are missing.

    A step that moves these parameters in place moves the model.

    >>> task = Task(nn.Linear(2, 1))
    >>> own, leaves = working_copy(task, {"weight": torch.ones(1, 2), "bias": torch.ones(1)})
    >>> own.model(torch.ones(1, 2)).item(), list(leaves)
    (3.0, ['weight', 'bias'])
    """
    names = [name for name, leaf in task.model.named_parameters() if leaf.requires_grad]
    own = private(task, {name: tensors[name] for name in names})
    with torch.no_grad():
        for name, buffer in own.model.named_buffers():
            if name in tensors:
                buffer.copy_(tensors[name])
    parameters = dict(own.model.named_parameters())
    return own, {name: parameters[name] for name in names}


def check_tensors(tensors: Tensors, task: Task, owner: str) -> None:
    """Refuse tensors that are not exactly the parameters and buffers of the task's model."""
    check_names(tensors, tensors_of(task), f"the state of {owner}", "State.of(model)")


def average(several: Sequence[Tensors], weights: Sequence[float]) -> dict[str, Tensor]:
    """Return the weighted mean of tensors by name; whole numbers are rounded.

    Args:
        several: tensors of the same names and shapes; at least one mapping.
        weights: weight of each mapping, above 0; their sum has no effect.

    >>> import torch
    >>> models = [{"w": torch.tensor([0.0, 4.0])}, {"w": torch.tensor([4.0, 4.0])}]
    >>> average(models, [3, 1])["w"]
    tensor([1., 4.])
    """
    require(len(several) > 0, "got no models to average; pass at least one")
    shares = [weight / sum(weights) for weight in weights]
    return {name: _mean([one[name] for one in several], shares) for name in several[0]}


def _mean(leaves: Sequence[Tensor], shares: Sequence[float]) -> Tensor:
    first = leaves[0]
    if not (first.is_floating_point() or first.is_complex()):  # a count of batches, for example
        return _mean([leaf.double() for leaf in leaves], shares).round().to(first.dtype)
    total = first * shares[0]
    for leaf, share in zip(leaves[1:], shares[1:], strict=True):
        total = total.add(leaf, alpha=share)
    return total


def in_types_of(model: nn.Module, leaves: Params, *, finer: bool = False) -> dict[str, Tensor]:
    """Return tensors of a coarser type than the model's in its type; others as they are.

    No digit is lost, and ``precision_of`` still finds how precise they are. With ``finer`` those of
    any other type are cast: servers with momentum or Adam send float64.

    >>> found = in_types_of(nn.Linear(2, 1), {"weight": torch.ones(1, 2, dtype=torch.float16)})
    >>> found["weight"].dtype
    torch.float32
    """
    own = model.state_dict()
    return {
        name: leaf.to(own[name].dtype)
        if name in own and (finer or _is_coarser(leaf, own[name]))
        else leaf
        for name, leaf in leaves.items()
    }


def _is_coarser(leaf: Tensor, other: Tensor) -> bool:
    floats = leaf.is_floating_point() and other.is_floating_point()
    return floats and torch.finfo(leaf.dtype).eps > torch.finfo(other.dtype).eps


def check_names(leaves: Params, wanted: Params, what: str, whole: str) -> None:
    """Refuse leaves with other names or shapes than the wanted ones."""
    for name in wanted:
        require_known(name, leaves, f"{what} has no {name!r}, which {whole} has")
    check_shapes(leaves, wanted, what, whole)


def check_shapes(leaves: Params, wanted: Params, what: str, whole: str) -> None:
    """Refuse leaves that are not among the wanted ones or have other shapes."""
    for name, leaf in leaves.items():
        require_known(name, wanted, f"{what} has {name!r}, not in {whole}")
        came, expected = list(leaf.shape), list(wanted[name].shape)
        require(came == expected, f"{what}: {name!r} is {came}; expected {expected} as {whole}")


def check_numbers(leaves: Params, what: str) -> None:
    """Refuse leaves other than finite floats."""
    for name, leaf in leaves.items():
        require(leaf.is_floating_point(), f"{what}: {name!r} is {leaf.dtype}; expected floats")
        require_plain(leaf, f"{what}: {name!r}")
        require(
            all_finite([leaf]),
            f"{what}: {name!r} is not finite (NaN or infinity); did the training diverge?",
        )
