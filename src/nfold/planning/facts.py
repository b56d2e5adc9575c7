"""What a strategy may know when it proposes placements."""

from collections.abc import Mapping
from dataclasses import dataclass

from nfold.core.cluster import Cluster
from nfold.core.graph import ModelGraph
from nfold.core.placement import Placement, Reduction
from nfold.core.profile import Profile


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """One planning question."""

    graph: ModelGraph
    profiles: Mapping[int, Profile]
    """By compute threads of a rank."""
    cluster: Cluster
    nodes: tuple[str, ...]
    """Node of each rank; dedicated servers come last."""
    workers: int
    servers: int
    batch_size: int
    chunks: int | None = None
    """Asked for by the user; None: the strategy chooses."""

    def threads(self, ranks_on_node: int) -> int:
        """Return the compute threads of a rank that shares its node with others.

        Not the fastest number measured: sums depend on it, and equal questions shall get equal bits.
        """
        fair = max(1, int(self.cluster.nodes[0].cores) // max(1, ranks_on_node))
        measured = sorted(self.profiles)
        return max((count for count in measured if count <= fair), default=measured[0])


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """A placement with its reductions, not yet simulated."""

    placement: Placement
    reductions: tuple[Reduction, ...]
    workers: int
    servers: int
