"""Watch the operations of a forward pass: random draws, convolutions, writes, and their number."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


class OperationWatcher(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records whether a pass draws random numbers, convolves, where it writes, and its length.

    Attributes:
        flops: floating point operations of matrix products and convolutions, as torch counts them.
        random: an operation that draws random numbers; empty if none does.
        written: names of buffers that change.
        convolves: whether the model has convolutions.
        overruns: whether one of these has no safe kernel with innermost channels; see ``overruns``.

    >>> with OperationWatcher() as seen, torch.no_grad():
    ...     _ = torch.nn.Linear(4, 5)(torch.ones(3, 4))
    >>> seen.flops == 2 * 3 * 4 * 5, seen.convolves
    (True, False)
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0
        self.random = ""
        self.written: list[str] = []
        self.convolves = self.overruns = False
        self._places: set[int] = set()
        self._followed: dict[str, tuple[Tensor, int]] = {}

    def follow(self, tensors: Mapping[str, Tensor]) -> None:
        """Follow tensors, by name, from before the pass."""
        self._followed |= {name: (value, _place(value)) for name, value in tensors.items()}

    def changed(self, now: Mapping[str, Tensor]) -> list[str]:
        """Return the names of followed tensors that the pass wrote, or that are others ``now``.

        A write by ``.data`` counts, and so does one by ``.data = other``.
        """
        found = []
        for name, value in now.items():
            before, place = self._followed[name]
            same = before is value and _place(value) == place
            if not same or value._version or place in self._places:
                found.append(name)
        return found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            self.random = func.overloadpacket.__name__
        if func.overloadpacket is torch.ops.aten.convolution:
            self.convolves = True
            self.overruns |= overruns(args[0], args[1], args[3])
        if func._schema.is_mutable:
            self._note(func._schema.arguments, args, kwargs or {})
        outputs = func(*args, **(kwargs or {}))
        if func.overloadpacket in flop_registry:
            count = flop_registry[func.overloadpacket]
            self.flops += count(*args, **(kwargs or {}), out_val=outputs)
        return outputs

    def _note(
        self, declared: Sequence[Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        """Note where an operation writes."""
        given = {**dict(zip((one.name for one in declared), args, strict=False)), **kwargs}
        for one in declared:
            if one.alias_info is not None and one.alias_info.is_write:
                values = given.get(one.name)
                several = values if isinstance(values, list | tuple) else [values]
                tensors = [value for value in several if isinstance(value, Tensor)]
                self._places.update(map(_place, tensors))


def overruns(x: Tensor, weight: Tensor, stride: Sequence[int]) -> bool:
    """Return whether oneDNN 3.12 on AVX2 writes past its buffer with innermost channels.

    It does (``double free or corruption``) in the weight gradient of a kernel of one point with a
    stride and fewer than 8 channels.

    >>> overruns(torch.ones(1, 4, 8, 8), torch.ones(6, 4, 1, 1), (2, 2))
    True
    """
    point = all(side == 1 for side in weight.shape[2:])
    return point and max(stride) > 1 and x.shape[1] < 8


def _place(value: Tensor) -> int:
    """Return the address of a tensor's memory; its identity where it has none."""
    strided = value.layout == torch.strided and value.numel() > 0
    return value.untyped_storage().data_ptr() if strided else -id(value)
