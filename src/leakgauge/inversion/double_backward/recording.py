"""Repeats a computation as a flat list of torch's operations.

A search computes the same thing at each iteration, for other records. In small networks most of the
time goes to Python and to autograd, which builds and walks two graphs. A recording keeps only the
operations that they end in, in their order, so its results are the same to the last bit. What does
not depend on the records is computed once.

A recording is used only after it gave the results of the computation itself twice, for two
different inputs. On a GPU it then becomes one CUDA graph, if that gives the same, too. A model that
cannot be recorded, for example one that looks at values, is computed as it is each time.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

from leakgauge.gradients.flattening import alike
from leakgauge.gradients.vectorising import REFUSALS
from leakgauge.inversion.double_backward.cuda_graph import CudaGraph, as_cuda_graph

Computation = Callable[..., Sequence[Tensor]]
"""Detached tensors -> detached tensors."""

_CHECKS = 2
"""Calls whose results are compared with those of the recording."""

_ROUNDING = 1e-4
"""Relative difference that counts as equal where a device sums in any order."""

_ADD = torch.ops.aten.add.Tensor
_ZEROS = torch.ops.aten.zeros_like.default


class Recording:
    """A computation of tensors that is recorded at its first call.

    All calls must have inputs of the same shapes and layouts. The computation must depend on its
    inputs, and on constants, only.

    Args:
        compute: returns detached tensors from detached ones.
        cuda_graph: whether a recording on a GPU becomes a CUDA graph.

    >>> double = Recording(lambda x: (2 * x,))
    >>> [double(torch.tensor([value]))[0].item() for value in (1.0, 2.0, 3.0)]
    [2.0, 4.0, 6.0]
    """

    def __init__(self, compute: Computation, *, cuda_graph: bool = True) -> None:
        self._compute, self._may_capture = compute, cuda_graph
        self._flat: fx.GraphModule | None = None
        self._graph: CudaGraph | None = None
        self._calls = 0

    @property
    def replays(self) -> bool:
        """Whether the next call repeats the recording."""
        return self._flat is not None and self._calls >= _CHECKS

    @property
    def on_gpu(self) -> bool:
        """Whether the next call is one CUDA graph."""
        return self._graph is not None

    @property
    def operations(self) -> list[fx.Node]:
        """The operations of each call, if it repeats the recording."""
        return [] if self._flat is None else list(self._flat.graph.nodes)

    def __call__(self, *inputs: Tensor) -> Sequence[Tensor]:
        """Return what the computation returns."""
        if self._calls >= _CHECKS:
            return self._repeated(inputs)
        results = self._compute(*inputs)
        if self._calls == 0:
            self._flat = record(self._compute, inputs)
        if self._flat is not None and not _same(results, _run(self._flat, inputs)):
            self._flat = None
        self._calls += 1
        return results

    def _repeated(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        if self._graph is not None:
            return self._graph(*inputs)
        if self._flat is None:
            return self._compute(*inputs)
        results = _run(self._flat, inputs)
        if self._calls == _CHECKS and self._may_capture:
            self._calls += 1
            graph = as_cuda_graph(self._flat.forward, inputs)
            if graph is not None and _same(results, graph(*inputs)):
                self._graph = graph
        return results


class RecordedObjective:
    """An objective of records, whose values and slopes come from a recording.

    Args:
        objective: ``(x [N, B, ...], y [N, B] or [N, B, classes]) -> [N]``, differentiable in ``x``,
            and in ``y`` where these are soft labels. Whether ``y`` requires a gradient is the same
            in all calls.
        cuda_graph: as in ``Recording``.

    >>> squared = RecordedObjective(lambda x, y: x.square().sum(1))
    >>> x = torch.tensor([[3.0]], requires_grad=True)
    >>> torch.autograd.grad(squared(x, torch.tensor([[0]])).sum(), x)[0].item()
    6.0
    """

    def __init__(
        self, objective: Callable[[Tensor, Tensor], Tensor], *, cuda_graph: bool = True
    ) -> None:
        self._objective = objective
        self._of_records = Recording(
            lambda x, y: self._slopes(x, y, soft=False), cuda_graph=cuda_graph
        )
        self._of_both = Recording(lambda x, y: self._slopes(x, y, soft=True), cuda_graph=cuda_graph)

    @property
    def replays(self) -> bool:
        """Whether the next call repeats a recording."""
        return self._of_records.replays or self._of_both.replays

    @property
    def on_gpu(self) -> bool:
        """Whether the next call is one CUDA graph."""
        return self._of_records.on_gpu or self._of_both.on_gpu

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the objective ``[N]``, differentiable once where ``x`` requires a gradient."""
        if not x.requires_grad:
            return self._objective(x, y)
        recording = self._of_both if y.requires_grad else self._of_records
        value, *slopes = recording(x.detach(), y.detach())
        return with_slopes(value, slopes, (x, y)[: len(slopes)])

    def _slopes(self, x: Tensor, y: Tensor, *, soft: bool) -> Sequence[Tensor]:
        x, y = x.detach().requires_grad_(), y.detach().requires_grad_(soft)
        with torch.enable_grad():
            value = self._objective(x, y)
            slopes = torch.autograd.grad(value.sum(), [x, y] if soft else [x])
        return value.detach(), *slopes


def with_slopes(value: Tensor, slopes: Sequence[Tensor], inputs: Sequence[Tensor]) -> Tensor:
    """Return values ``[N]`` of rows whose slopes in the inputs ``[N, ...]`` are known.

    >>> x = torch.tensor([[3.0]], requires_grad=True)
    >>> value = with_slopes(torch.tensor([9.0]), [torch.tensor([[6.0]])], [x])
    >>> torch.autograd.grad(2 * value.sum(), x)[0].item()
    12.0
    """
    result: Tensor = _WithSlopes.apply(value, len(inputs), *inputs, *slopes)  # type: ignore[no-untyped-call]
    return result


class _WithSlopes(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, count: int, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors[count:])
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, unit: Tensor) -> tuple[Tensor | None, ...]:
        slopes = ctx.saved_tensors
        return (
            None,
            None,
            *(slope * alike(unit, slope) for slope in slopes),
            *(None for _ in slopes),
        )


def record(compute: Computation, inputs: Sequence[Tensor]) -> fx.GraphModule | None:
    """Return the operations of a computation as a module; None if it cannot be recorded."""
    from torch._guards import TracingContext, tracing  # these take a second to import
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    # Without a mode for all tensors, torch makes one for each, which takes as long as all the rest.
    shapes = FakeTensorMode(allow_fallback_kernels=True)
    try:
        with _Values(), tracing(TracingContext(shapes)):
            module = make_fx(lambda *given: tuple(compute(*given)))(*inputs)
        graph = module.graph
        if any(_random(node) for node in graph.nodes):
            return None
        _shorten(graph)
        graph.eliminate_dead_code()
        _compute_constants(module)
        module.recompile()
    except REFUSALS:
        return None
    return module


def _run(flat: fx.GraphModule, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    with torch.no_grad():
        results: Sequence[Tensor] = flat.forward(*inputs)
    return results


def _same(results: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    for one, other in zip(results, others, strict=True):
        if one.device.type == "cpu":
            if not torch.equal(one.nan_to_num(), other.nan_to_num()):
                return False
        elif not float((one - other).norm()) <= _ROUNDING * float(one.norm()):
            return False
    return True


class _Values(TorchFunctionMode):
    """Refuses to hand values to Python, which a recording would keep as constants."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (Tensor.tolist, Tensor.numpy, Tensor.__array__, Tensor.item):
            raise NotImplementedError("the computation looks at values")
        return func(*args, **(kwargs or {}))


def _shorten(graph: fx.Graph) -> None:
    """Remove aliases, and sums with zeros."""
    for node in list(graph.nodes):
        if node.target is torch.ops.aten.detach.default:
            node.replace_all_uses_with(node.args[0])
        elif node.target is _ADD and not node.kwargs:
            for zeros, other in (node.args, node.args[::-1]):
                if isinstance(zeros, fx.Node) and zeros.target is _ZEROS and _alike(node, other):
                    node.replace_all_uses_with(other)
                    break


def _alike(node: fx.Node, other: Any) -> bool:
    if not isinstance(other, fx.Node):
        return False
    pair = [one.meta.get("val") for one in (node, other)]
    if not all(isinstance(one, Tensor) for one in pair):
        return False
    shapes = [(one.shape, one.dtype, one.stride()) for one in pair if isinstance(one, Tensor)]
    return shapes[0] == shapes[1]


def _compute_constants(module: fx.GraphModule) -> None:
    """Compute what does not depend on the inputs, and put the results in its place."""
    graph, changing = module.graph, set[fx.Node]()
    for node in graph.nodes:
        moves = node.op == "placeholder" or any(one in changing for one in node.all_input_nodes)
        if _writes(node):
            if any(one not in changing for one in node.all_input_nodes[:1]):
                return  # It writes to a constant: all of it has to be done anew each time.
            moves = True
        if moves:
            changing.add(node)
    interpreter = _Constants(module, changing)
    interpreter.run(*[None for node in graph.nodes if node.op == "placeholder"])
    ends = [node for node in interpreter.values if any(user in changing for user in node.users)]
    for number, node in enumerate(ends):
        value = interpreter.values[node]
        if node.op == "get_attr" or not isinstance(value, Tensor):
            continue
        name = f"_computed{number}"
        module.register_buffer(name, value, persistent=False)
        with graph.inserting_before(node):
            node.replace_all_uses_with(graph.get_attr(name), lambda user: user in changing)
    graph.eliminate_dead_code()


class _Constants(fx.Interpreter):
    """Runs the nodes that do not change, and keeps their values."""

    def __init__(self, module: fx.GraphModule, changing: set[fx.Node]) -> None:
        super().__init__(module, garbage_collect_values=False)
        self._changing = changing
        self.values: dict[fx.Node, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        """Return the value of a constant node, and None for another."""
        if n in self._changing or n.op == "output":
            return None
        with torch.no_grad():
            self.values[n] = super().run_node(n)
        return self.values[n]


def _writes(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


def _random(node: fx.Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
