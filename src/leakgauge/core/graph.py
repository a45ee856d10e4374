"""Walk the graph that autograd keeps of a tensor."""

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor


def nodes_of(found: Tensor, without: Iterable[Any] = ()) -> Iterator[Any]:
    """Yield each operation in the graph of a tensor once, and each leaf that it ends in.

    Args:
        found: a tensor with its graph.
        without: operations at which the walk ends; they are not yielded.
    """
    seen, left = set(without), [found.grad_fn]
    while left:
        node = left.pop()
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            left.extend(one for one, _ in node.next_functions)
