"""The nodes that autograd keeps of how a tensor was computed."""

from collections.abc import Iterator
from typing import Any

from nfold.capture.batches.tree import tensors_of


def backward_nodes(value: Any) -> Iterator[Any]:
    """Yield each node of the backward of all tensors in a value, once."""
    waiting, seen = [tensor.grad_fn for tensor in tensors_of(value)], set[Any]()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        waiting += [each for each, _ in node.next_functions]
