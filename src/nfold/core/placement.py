"""Who computes each cell of the operators x chunks grid, and how the gradients of shared weights are summed."""

from dataclasses import dataclass
from typing import Literal

from nfold.errors import InternalError

Route = Literal["local", "ring", "server"]
ADDEND_BYTES = 8
"""Of a gradient's element as a whole number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """cell (operator, chunk) -> rank.

    Attributes:
        num_chunks: cuts of the global batch, equal unless the plan has shares; fixed for a job.
        world_size: ranks, those that own no cell included: dedicated servers, which come last, and idle workers.
        owners: for each operator the owning rank of each chunk.
    """

    num_chunks: int
    world_size: int
    owners: dict[str, tuple[int, ...]]

    def __post_init__(self) -> None:
        for operator, ranks in self.owners.items():
            if len(ranks) != self.num_chunks:
                raise InternalError(f"{operator} is placed for {len(ranks)} chunks, the job has {self.num_chunks}")
            if any(not 0 <= rank < self.world_size for rank in ranks):
                raise InternalError(f"{operator} is placed on {ranks}, the job has ranks 0 to {self.world_size - 1}")

    @property
    def is_cut(self) -> bool:
        """Whether some rank computes a part of the operators only, so that ranks have unequal work."""
        owned = [set(ranks) for ranks in self.owners.values()]
        return any(ranks != owned[0] for ranks in owned)

    @property
    def working(self) -> tuple[int, ...]:
        """Ranks that own a cell, ascending."""
        return tuple(sorted({rank for ranks in self.owners.values() for rank in ranks}))

    def ranks_of(self, operators: tuple[str, ...]) -> tuple[int, ...]:
        """Return the ranks that own a cell of any of these operators, ascending."""
        return tuple(sorted({rank for operator in operators for rank in self.owners[operator]}))


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """Elements [start, stop) of a bucket that one rank sums. A rank may have several."""

    rank: int
    start: int
    stop: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Reduction:
    """How one bucket of gradients becomes updated parameters.

    `local`: the only owner updates. `ring`: every member sums its share in a ring pass, the sums go round once
    more, and every member updates. `server`: the ranks in `shares` sum, update and send the values back, share by
    share, so that one share is pushed while another is updated and a third is pulled.
    """

    name: str
    parameters: tuple[str, ...]
    """In the order in which they lie in the bucket."""
    num_elements: int
    dtype: str
    item_bytes: int
    members: tuple[int, ...]
    """Ranks that compute a gradient for it, ascending."""
    route: Route
    shares: tuple[Share, ...] = ()
    """Of route `server`: in the order of their elements, together the whole bucket, none empty."""
    piece_elements: int = 0
    """Largest message; a share is sent in pieces so that sending, summing and receiving overlap. 0: whole shares."""
    fraction_bits: int | None = None
    """Gradients are summed as whole numbers of 64 bits, in units of 2 to the power of minus so many (`--exact`); None:
    as what they are."""

    @property
    def addend_bytes(self) -> int:
        """Bytes of an element while it is summed."""
        return self.item_bytes if self.fraction_bits is None else ADDEND_BYTES

    @property
    def num_bytes(self) -> int:
        """Bytes of the bucket."""
        return self.num_elements * self.item_bytes

    @property
    def holders(self) -> tuple[int, ...]:
        """Ranks that hold current values of the bucket after a step, ascending."""
        return tuple(sorted({*self.members, *(share.rank for share in self.shares)}))
