"""What the modules of a model put out, in two numbers each: where two calls differ, the first of them is at fault.

    conv     norm 3.1  projection  0.4      conv     norm 3.1  projection  0.4
    noise    norm 9.8  projection  2.0      noise    norm 9.6  projection -1.3     here
    loss     norm 2.3  projection  2.3      loss     norm 2.4  projection  2.4

Numbers and no checksums: machines, and numbers of threads, round differently.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

FINE, COARSE = 1e-3, 0.1
"""How far apart outputs are at least, by their norm, to be others: machines round and sum as they like. The second from
the first output of a half-precision type on."""

FLOOR = 0.1
"""Of the largest norm before it: no output counts as smaller. Where much cancels out, rounding is all that is left."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModuleOutput:
    """Two numbers that summarise the output of one call of one module, or the value of the loss."""

    module: str
    """Its path and type, as in `blocks.0.mlp (Linear)`."""
    norm: float
    """Of some of its elements."""
    projection: float
    """Of them on a vector of signs, the same wherever this is measured."""
    is_coarse: bool = False
    """Whether its type is of half precision, or it was computed under autocast."""


def first_difference(one: Sequence[ModuleOutput], other: Sequence[ModuleOutput], *, scale: float = 1.0) -> str:
    """Say where two calls of a model first differ, and by how much; empty if by no more than rounding.

    Args:
        one: what the modules put out in one call.
        other: in the other.
        scale: of what counts as rounding; less on one machine than on two.
    """
    tolerance, largest = FINE, 0.0
    for mine, theirs in zip_longest(one, other):
        if mine is None or theirs is None or mine.module != theirs.module:
            names = [f"the {each.module}" if each else "nothing more" for each in (mine, theirs)]
            return f"one computes {names[0]} where the other computes {names[1]}"
        tolerance = COARSE if mine.is_coarse or theirs.is_coarse else tolerance
        norm = max(mine.norm, theirs.norm)
        largest = max(norm, largest)
        apart = max(abs(mine.norm - theirs.norm), abs(mine.projection - theirs.projection))
        if apart > scale * tolerance * max(norm, FLOOR * largest):
            return f"the output of the {mine.module} differs first, by {100 * apart / norm:.2g} % of its norm"
    return ""
