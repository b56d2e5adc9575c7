"""Refuses batches whose samples have other sizes than those that a capture has fixed, before anything is computed."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from nfold.capture.batches.sizes import Affine, fit
from nfold.capture.batches.tree import paths_of, shapes_text
from nfold.capture.program.program_graph import INPUT, Traced
from nfold.capture.tracing.observe import Play
from nfold.errors import ProgramError


@dataclass(frozen=True, slots=True)
class FixedSizes:
    """Sizes of an input that are the same in every batch: (path, dimension, size)."""

    sizes: tuple[tuple[tuple[Any, ...], int, int], ...]

    def check(self, inputs: Any) -> None:
        """Compare a batch. About 1 us for each size.

        Raises:
            ProgramError: its samples have other sizes.
        """
        tensors = dict(paths_of(inputs))
        for path, dimension, size in self.sizes:
            found = tensors[path].shape
            if found[dimension] != size:
                where = f" at {'.'.join(map(str, path))}" if path else ""
                raise ProgramError(
                    f"a batch is {shapes_text(tensors[path])}{where}, and dimension {dimension} was {size} in every "
                    "batch with which nfold tried forward, which reads that size. "
                    "Give all samples one shape (pad them)."
                )


def fixed_sizes(traced: Traced, plays: list[Play], sizes: dict[fx.Node, Any]) -> FixedSizes | None:
    """Return what the batches of a captured program must have alike; None if forward reads no such size.

    Args:
        traced: the program.
        plays: what its nodes did.
        sizes: nodes that compute sizes, with the rule for each.
    """
    read = [rule for node, rule in sizes.items() if any(user not in sizes for user in node.users)]
    if traced.method == "opaque" or not (traced.method == "export" or traced.asks_sizes or any(map(_is_fixed, read))):
        return None
    observed = [
        (play.size, dict(paths_of(seen.value)))
        for play in plays
        for node, seen in play.nodes.items()
        if node.op == "placeholder" and node.target == INPUT
    ]
    found = []
    for path, tensor in observed[0][1].items():
        for dimension in range(tensor.ndim):
            line = fit([(size, parts[path].shape[dimension]) for size, parts in observed])
            if line is not None and line.slope == 0:
                found.append((path, dimension, line.fixed))
    return FixedSizes(tuple(found))


def _is_fixed(rule: Any) -> bool:
    if isinstance(rule, (tuple, torch.Size)):
        return any(map(_is_fixed, rule))
    return isinstance(rule, Affine) and rule.slope == 0
