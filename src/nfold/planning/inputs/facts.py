"""What a strategy may know when it proposes placements."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nfold.core.chunks import chunk_sizes
from nfold.core.cluster import Cluster
from nfold.core.graph import ModelGraph
from nfold.core.placement import Placement, Reduction
from nfold.core.plan import Asynchrony, Plan, is_replicated
from nfold.core.profile import Profile

ABOUT_AS_FAST = 1.1
"""So many times the least seconds. Measurements on a machine at rest seldom differ by more, so a tiny program, as fast
with any number of threads, has the same threads and bits again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """One planning question: a program, machines and wishes."""

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
    chunk_shares: tuple[float, ...] = ()
    """Of a batch: chunk c is what lives on rank c, so there are as many as ranks. Empty: all ranks read all samples,
    and chunks are equal."""
    staleness: int | None = None
    """Of `ssp`: slices that a worker may be ahead of the slowest; None: the strategy chooses."""
    staleness_aware: bool = False
    """Of asynchronous strategies: whether a gradient's learning rate is divided by its age."""
    evaluates: bool = False
    """Whether the model is evaluated between steps."""
    keeps_snapshots: bool = False
    """Whether each rank has snapshots in memory of what it holds, and of what another one holds alone."""
    chunks_are_settled: bool = False
    """Whether a run goes on, of whose result the number of chunks is a part."""
    fraction_bits: int | None = None
    """Gradients are summed as whole numbers, see `Reduction`, and only plans count that give the bits of one device.
    None: without `--exact`."""
    may_rest: frozenset[str] = frozenset()
    """Nodes whose workers may get no chunk where each has the whole model: their speed was seen while they trained."""
    load_is_waited: bool = False
    """Whether loading a sample takes, by the profiles, what a run really waited for it; else what reading it takes,
    ahead of its use and beside computing."""

    def chunk_sizes(self, num_chunks: int) -> tuple[int, ...]:
        """Return the samples of each chunk of a full batch that is cut into so many."""
        return chunk_sizes(self.batch_size, num_chunks, self.graph.least_chunk, self.chunk_shares)

    def threads(self, world_size: int) -> tuple[int, ...]:
        """Return the compute threads of each of the first ranks: as many as help, of their nodes' cores."""
        nodes = self.nodes[:world_size]
        seconds = worker_seconds(self.profiles, self.batch_size, self.workers, self.chunks)
        return tuple(useful_threads(self.cluster.node(node).cores, nodes.count(node), seconds) for node in nodes)

    def profiles_of(self, threads: Sequence[int]) -> tuple[Profile, ...]:
        """Return the profile of each rank, by its threads.

        A plan is played again with the one profile that its run's folder keeps, and its ranks may have others: those
        compute as the fewest threads that have a profile.
        """
        fewest = self.profiles[min(self.profiles)]
        return tuple(self.profiles.get(count, fewest) for count in threads)


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """A placement with its reductions, not yet simulated."""

    placement: Placement
    reductions: tuple[Reduction, ...]
    workers: int
    servers: int
    splits: Mapping[str, int] = field(default_factory=dict)
    """Operators that the placement has in so many parts; see `planning/operator_parts/splitting.py`."""
    asynchrony: Asynchrony | None = None
    """None: steps are synchronous."""
    windows: tuple[int, ...] = ()
    """How many unfinished chunks each rank may have begun; empty: enough to be busy. See
    `planning/scheduling/windows.py`."""
    notes: tuple[str, ...] = ()
    """What a user should know of how it was found."""


def proposal_of(plan: Plan) -> Proposal:
    """Return the proposal that a plan was made from, to simulate it again."""
    return Proposal(
        placement=plan.placement,
        reductions=plan.reductions,
        workers=plan.workers,
        servers=plan.servers,
        splits=plan.splits,
        asynchrony=plan.asynchrony,
        windows=plan.windows,
    )


def commits(facts: Facts, proposal: Proposal) -> bool:
    """Return whether updates of a synchronous proposal wait until all messages of a step are over; see `Plan`."""
    is_whole = not proposal.splits and is_replicated(proposal.placement, proposal.reductions)
    return facts.keeps_snapshots and is_whole


def worker_seconds(
    profiles: Mapping[int, Profile], batch_size: int, workers: int, chunks: int | None
) -> dict[int, float]:
    """Return how long a worker computes in a step that all share alike, by its threads.

    Args:
        profiles: by threads.
        batch_size: of a step.
        workers: that share it.
        chunks: of the batch; None: one for each worker.
    """
    count = chunks or workers
    return {
        threads: sum(profile.whole_s(batch_size / count)) * count / workers + profile.update.median_s
        for threads, profile in profiles.items()
    }


def useful_threads(cores: float, num_ranks: int, seconds: Mapping[int, float]) -> int:
    """Return the compute threads of a rank that shares its node with others: the fewest that are about as fast as any.

    More than a small program can use make it slower, the more so where others compute too. Never more than the rank's
    share of the cores, as far as that was measured.

    Args:
        cores: of the node.
        num_ranks: on it.
        seconds: by threads, as measured.
    """
    share = max(1, int(cores) // max(1, num_ranks))
    fair = [count for count in seconds if count <= share] or [min(seconds)]
    enough_s = ABOUT_AS_FAST * min(seconds[count] for count in fair)
    return min(count for count in fair if seconds[count] <= enough_s)
