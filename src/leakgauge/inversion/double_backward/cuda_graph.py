"""Repeats operations on a GPU as one CUDA graph.

A small network's step has thousands of kernels of a few microseconds each, and a GPU waits for the
launch of each of them. A CUDA graph launches all of them at once.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from leakgauge.gradients.vectorising import REFUSALS

Operations = Callable[..., Sequence[Tensor]]
"""Detached tensors -> detached tensors, by the same kernels for all values."""

_WARM_UPS = 3
"""Runs before the capture, in which libraries choose their kernels and take their memory."""


class CudaGraph:
    """Operations as a CUDA graph; it holds the memory of one step.

    Args:
        operations: the operations, which read no value.
        inputs: tensors on a GPU, of the shapes and types of all later calls.

    Raises:
        RuntimeError: torch cannot capture the operations.
    """

    def __init__(self, operations: Operations, inputs: Sequence[Tensor]) -> None:
        self._inputs = [one.clone() for one in inputs]
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):
                operations(*self._inputs)
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            self._results = operations(*self._inputs)

    def __call__(self, *inputs: Tensor) -> Sequence[Tensor]:
        """Return what the operations return; later calls leave these results as they are."""
        for own, given in zip(self._inputs, inputs, strict=True):
            own.copy_(given)
        self._graph.replay()
        return [one.clone() for one in self._results]


def as_cuda_graph(operations: Operations, inputs: Sequence[Tensor]) -> CudaGraph | None:
    """Return the operations as a CUDA graph; None without a GPU, or if torch cannot capture them.

    >>> as_cuda_graph(lambda x: (2 * x,), [torch.ones(3)]) is None
    True
    """
    if not inputs or not all(one.is_cuda for one in inputs):
        return None
    try:
        with torch.no_grad(), torch.cuda.device(inputs[0].device):
            return CudaGraph(operations, inputs)
    except REFUSALS:
        return None
