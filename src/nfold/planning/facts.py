"""What a strategy may know when it proposes placements."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nfold.core.cluster import Cluster
from nfold.core.graph import ModelGraph
from nfold.core.placement import Placement, Reduction
from nfold.core.plan import Asynchrony
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
    staleness: int | None = None
    """Of `ssp`: slices that a worker may be ahead of the slowest; None: the strategy chooses."""
    staleness_aware: bool = False
    """Of asynchronous strategies: whether a gradient's learning rate is divided by its age."""

    def threads(self, world_size: int) -> tuple[int, ...]:
        """Return the compute threads of each of the first ranks: fair shares of their nodes' cores."""
        nodes = self.nodes[:world_size]
        return tuple(fair_threads(self.cluster.node(node).cores, nodes.count(node), self.profiles) for node in nodes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """A placement with its reductions, not yet simulated."""

    placement: Placement
    reductions: tuple[Reduction, ...]
    workers: int
    servers: int
    splits: Mapping[str, int] = field(default_factory=dict)
    """Operators that the placement has in so many parts; see `planning/splitting.py`."""
    asynchrony: Asynchrony | None = None
    """None: steps are synchronous."""
    notes: tuple[str, ...] = ()
    """What a user should know of how it was found."""


def fair_threads(cores: float, num_ranks: int, profiles: Mapping[int, Profile]) -> int:
    """Return the compute threads of a rank that shares its node with others, as far as they were measured.

    Not the fastest number measured: sums depend on it, and equal questions shall get equal bits.
    """
    fair = max(1, int(cores) // max(1, num_ranks))
    return max((count for count in profiles if count <= fair), default=min(profiles))
