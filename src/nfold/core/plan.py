"""What will run where: the chosen placement, its reductions, what it should cost, and what lost to it."""

from dataclasses import dataclass, field

from nfold.core.placement import Placement, Reduction


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """The seconds, bytes and memory of one step, as simulated."""

    step_s: float
    sent_bytes_per_step: int
    """Payload over all ranks."""
    peak_memory_bytes: tuple[int, ...]
    """Per rank."""
    compute_s: float = 0.0
    """Forward and backward, mean over the ranks that compute."""
    exposed_communication_s: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Unpredicted:
    """Stands in for a prediction where a strategy could propose nothing: the same JSON object without figures."""

    step_s: None = None
    sent_bytes_per_step: None = None
    peak_memory_bytes: tuple[int, ...] = ()
    compute_s: None = None
    exposed_communication_s: None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Rejected:
    """A strategy that was not chosen, what it was predicted to take, and why it lost."""

    strategy: str
    predicted: Prediction | Unpredicted
    why: str
    chunks: int = 0
    """0 when it could not be proposed at all."""
    is_undominated: bool = False
    """Whether nothing else that fits the memory is as good in step time, bytes and memory, and better in one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asynchrony:
    """How far workers may drift apart where each takes the next slice of a batch when it is done with the last."""

    bound: int | None
    """Slices that a worker may be ahead of the slowest; None: any number."""
    staleness_aware: bool = False
    """Whether a gradient's learning rate is divided by its age in steps."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """A placement of the grid on named nodes, with the reductions that keep its replicas equal."""

    strategy: str
    chunks: int
    batch_size: int
    workers: int
    servers: int
    """Dedicated server ranks; they follow the workers."""
    nodes: tuple[str, ...]
    """Node of each rank."""
    threads: tuple[int, ...]
    """Compute threads of each rank."""
    placement: Placement
    reductions: tuple[Reduction, ...]
    loads_s: tuple[float, ...]
    """Compute seconds per step of each rank at its own speed."""
    predicted: Prediction
    is_undominated: bool = True
    """As in Rejected; a strategy that was asked for by name may be worse than another in everything."""
    rejected: tuple[Rejected, ...] = ()
    splits: dict[str, int] = field(default_factory=dict)
    """Operators that are cut into so many parts, each a row of the grid of its own; see
    `planning/operator_parts/splitting.py`."""
    asynchrony: Asynchrony | None = None
    """None: every step waits for all gradients, and a schedule says what is done when."""
    notes: tuple[str, ...] = ()
    """What a user should know of how it was found."""
    paces: tuple[float, ...] = ()
    """By how much each rank computes longer than the first one's profile says: every rank orders the cells of all by
    it. Empty: as if all were equally fast."""
    windows: tuple[int, ...] = ()
    """How many unfinished chunks each rank may have begun, so that what it keeps of them fits its memory. Empty: enough
    to be busy."""
    evaluates: bool = False
    """Whether the model is evaluated between steps, which takes room where no worker holds all of it."""
    keeps_snapshots: bool = False
    """Whether ranks keep snapshots in memory, since hosts come and go."""
    loaders: int = 0
    """Processes that read for each rank, as many as its cores can keep busy; 0: a thread of the rank reads."""
    chunk_shares: tuple[float, ...] = ()
    """Of a batch, where each chunk is what lives on its rank; empty: chunks are equal."""

    @property
    def world_size(self) -> int:
        """The number of ranks: workers and dedicated servers."""
        return self.placement.world_size

    @property
    def is_replicated(self) -> bool:
        """Whether each of several ranks that work holds the whole model and all of the optimizer's state."""
        return self.asynchrony is None and not self.splits and is_replicated(self.placement, self.reductions)

    @property
    def commits(self) -> bool:
        """Whether updates wait until all messages of a step are over, so that a step which fails changes nothing."""
        return self.keeps_snapshots and self.is_replicated

    @property
    def is_alone(self) -> bool:
        """Whether one rank holds the whole model, and updates all of it, in synchronous steps."""
        working, is_synchronous = self.placement.working, self.asynchrony is None and not self.splits
        are_own = all(each.route == "local" and each.members == working for each in self.reductions)
        return is_synchronous and len(working) == 1 and are_own

    @property
    def may_be_followed(self) -> bool:
        """Whether a step updates last, from sums that a newcomer could be given to do the same."""
        return self.commits or (self.keeps_snapshots and self.is_alone)

    @property
    def keepers(self) -> tuple[int, ...]:
        """Ranks that have a part of the training's state, ascending. Others run ahead of these."""
        if self.asynchrony is not None:
            return tuple(range(self.world_size))
        return tuple(sorted({*self.placement.working, *(rank for each in self.reductions for rank in each.holders)}))

    def samples_of(self, rank: int) -> float:
        """Return how many samples of a batch a rank computes something of, as a mean over steps."""
        owned = {
            chunk for ranks in self.placement.owners.values() for chunk, owner in enumerate(ranks) if owner == rank
        }
        if not self.chunk_shares:
            return self.batch_size * len(owned) / self.placement.num_chunks
        return self.batch_size * sum(self.chunk_shares[chunk] for chunk in owned)


def is_replicated(placement: Placement, reductions: tuple[Reduction, ...]) -> bool:
    """Whether each of several ranks that work holds the whole model, and updates all of it, in synchronous steps."""
    working = placement.working
    if len(working) < 2 or placement.is_cut:
        return False
    return all(each.route == "ring" and set(each.members) == set(working) for each in reductions)
