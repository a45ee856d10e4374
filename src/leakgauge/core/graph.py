"""Walk the graph that autograd keeps of a tensor."""

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves


def nodes_of(found: Any, without: Iterable[Any] = ()) -> Iterator[Any]:
    """Yield each operation in the graph of tensors once, and each leaf that it ends in.

    Args:
        found: a tensor with its graph, or several in lists and mappings.
        without: operations at which the walk ends; they are not yielded.
    """
    ends = [one.grad_fn for one in tree_leaves(found) if isinstance(one, Tensor)]
    seen, left = set(without), ends
    while left:
        node = left.pop()
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            left.extend(one for one, _ in node.next_functions)
