"""Who holds which training samples, who shall, and what a run costs then."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal, get_args

from nfold.core.text.units import count
from nfold.errors import ClusterError

Method = Literal["auto", "nothing", "equal", "ilp", "greedy", "lp", "waterfill", "overlap", "joint"]
Moving = Literal["nothing", "before training", "while training"]
METHODS: tuple[Method, ...] = get_args(Method)
TrafficKind = Literal["ring", "server", "pipeline"]


Spans = tuple[tuple[int, int], ...]
"""[first, end) of the samples' numbers in the whole data: 0 to N - 1, rank after rank in the first generation."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankSamples:
    """The samples that one rank trains on in an epoch."""

    own: Spans
    arriving: Spans = ()
    """Those that come while the epoch goes on, in this order; they are the last of this rank's samples then."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochSamples:
    """Who trains on which samples from an epoch on, until the next of these."""

    from_epoch: int
    by_rank: tuple[RankSamples, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleMove:
    """Samples that one member sends to another. A member's number is its rank in the first generation."""

    source: int
    target: int
    spans: Spans
    epoch: int | None = None
    """In which the target needs them, as its `arriving` ones; they are its own from the next epoch on. None: before
    training."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacedRun:
    """Who trains on which samples from a step on.

    A run that goes on elsewhere has several, and its order is a function of seed, epoch and all of them so far. Of an
    epoch that is under way at the first step only what it has not visited yet is ordered anew.
    """

    first_step: int
    members: tuple[int, ...]
    """Who trains, by rank."""
    nodes: tuple[str, ...]
    """Of the members, by rank."""
    epochs: tuple[EpochSamples, ...]
    """Ascending; the first one begins no later than the epoch of the first step."""
    moves: tuple[SampleMove, ...] = ()
    in_a_row: int = 1
    """Samples of a rank that are visited together: two where a program computes nothing on one. It was measured, so it
    is kept: found otherwise elsewhere, it would change the order of an epoch under way."""
    has_moved: bool = False
    """Whether what it needs before training was known to be there when it was written: the run had gone on until then,
    with nodes that may be gone by now."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Holding:
    """The samples that live on one node."""

    node: str
    num_samples: int
    num_pinned: int = 0
    """Of them, how many may not leave."""
    most_samples: int | None = None
    """For which its storage has room, those that live there among them; None: not limited."""
    spans: Spans = ()
    """Which they are; empty: nobody knows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Residency:
    """Where all samples live. Every sample lives on one node."""

    holdings: tuple[Holding, ...]
    """In the order of the cluster's nodes."""
    sample_bytes: float
    """Of one sample, when it is sent."""

    def __post_init__(self) -> None:
        for holding in self.holdings:
            _check_holding(holding)
        claims = sorted((first, end, holding.node) for holding in self.holdings for first, end in holding.spans)
        for (_, end, one), (first, _, other) in pairwise(claims):
            if first < end:
                raise ClusterError(
                    f"{one} and {other} both claim sample {first}: an epoch would visit it twice. "
                    "Take it from the list of one of them."
                )

    @property
    def num_samples(self) -> int:
        """Return how many there are in all."""
        return sum(holding.num_samples for holding in self.holdings)


@dataclass(frozen=True, kw_only=True, slots=True)
class Transfer:
    """Samples that move from one node to another."""

    source: str
    target: str
    num_samples: int
    num_bytes: float
    takes_s: float
    """Beside the other transfers of both nodes."""
    saves_s: float | None
    """Of all epochs, over those in which these samples stay where they are; None: they cannot, since their node is
    excluded."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeShare:
    """What one node does."""

    node: str
    held: int
    """Samples that live there now."""
    holds: int
    """That live there after all has moved. It trains on them in each epoch; in a pipeline they pass through all."""
    is_member: bool
    """Whether it computes and sends gradients."""
    share: float
    """Of each batch, and in a pipeline of computing; 0 of a node that is no member."""
    computes_s: float
    """In an epoch, once all has moved."""
    sends_bytes: float
    receives_bytes: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RunCost:
    """What a run takes, as predicted: all epochs, and moving data."""

    move_s: float
    """Before training begins."""
    first_epoch_s: float
    epoch_s: float
    """The last one."""
    compute_s: float
    """Of the last epoch, on the node that computes longest."""
    sync_s: float
    """Of every epoch, in which gradients travel."""
    run_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class TriedMethod:
    """What another way to decide would have cost."""

    method: str
    cost: RunCost | None = None
    note: str = ""
    """Why there is no cost."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ResidencyPlan:
    """Which samples move, who trains on what, and what that brings."""

    method: Method
    moving: Moving
    epochs: int
    batch_size: int
    """That the run should have; another one than was asked for only where that was allowed."""
    traffic: TrafficKind
    before: Residency
    nodes: tuple[NodeShare, ...]
    """In the order of the cluster's nodes."""
    transfers: tuple[Transfer, ...]
    """In the order in which they should begin: near ones first."""
    cost: RunCost
    unmoved: RunCost | None
    """The same run where every sample stays; None: it cannot, since a node that holds some is excluded."""
    promised_s: float | None = None
    """The run as the method's own model has it, where that leaves out what nodes share."""
    gap: float | None = None
    """Of a solver that was stopped: how far its plan may be from the best one, as a share of it."""
    tried: tuple[TriedMethod, ...] = ()
    works: tuple[tuple[int, ...], ...] = ()
    """While data move: samples that each node trains on in the first epoch, the second and so on, and what it `holds`
    from then on. Empty: that in every epoch."""
    sentences: tuple[str, ...] = ()
    """The plan in words: what moves and why, who sends no gradients and why, what holds it up."""

    @property
    def moved_bytes(self) -> float:
        """Return all bytes that travel between nodes before they are trained on."""
        return sum(transfer.num_bytes for transfer in self.transfers)

    @property
    def speedup(self) -> float | None:
        """Return how many times as long the run takes where every sample stays; None: it cannot."""
        return None if self.unmoved is None else self.unmoved.run_s / self.cost.run_s

    @property
    def members(self) -> tuple[str, ...]:
        """Return the nodes that compute."""
        return tuple(node.node for node in self.nodes if node.is_member)


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeData:
    """What lived on a node when it came to a run."""

    node: str
    num_samples: int
    num_pinned: int = 0
    digest: str = ""
    """Of names, sizes, times and ends of its files, or of a few items: other data may have as many."""
    is_brought: bool = False
    """Whether it came while the run trained, with samples of its own: they count from a later epoch on, if at all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacedData:
    """What is kept of a run whose data live on its nodes."""

    members: tuple[NodeData, ...]
    """By number: the ranks of the first generation, and then whoever came later."""
    key: str
    """Names the data, and by that the numbers of samples, where a node keeps those that came to it."""
    sample_bytes: float
    """The mean of a sample, when it is sent."""
    runs: tuple[PlacedRun, ...]
    """In their order; the last one holds."""
    plan: ResidencyPlan
    """That the last one follows."""


def spans_of(members: Sequence[NodeData]) -> tuple[tuple[int, int], ...]:
    """Return the numbers of the samples that lived on each member at first, [first, end)."""
    ends = list(accumulate(member.num_samples for member in members))
    return tuple((end - member.num_samples, end) for end, member in zip(ends, members, strict=True))


def num_begun(members: Sequence[NodeData]) -> int:
    """Return how many samples a run began with, which have the first numbers."""
    return sum(member.num_samples for member in members if not member.is_brought)


def _check_holding(holding: Holding) -> None:
    _check_spans(holding.node, holding.num_samples, holding.spans)
    if not 0 <= holding.num_pinned <= holding.num_samples:
        raise ClusterError(
            f"{holding.node} pins {count(holding.num_pinned, 'sample')} and holds {holding.num_samples}: "
            "only what lives there can be pinned."
        )
    if holding.most_samples is not None and holding.most_samples < holding.num_samples:
        raise ClusterError(
            f"{holding.node} holds {count(holding.num_samples, 'sample')}, and its storage has room for "
            f"{holding.most_samples}. Give it the storage that it has."
        )


def _check_spans(node: str, num_samples: int, spans: Sequence[tuple[int, int]]) -> None:
    bad = next(((first, end) for first, end in spans if not 0 <= first < end), None)
    if bad is not None:
        raise ClusterError(f"{node} claims the samples from {bad[0]} to {bad[1]}: that is no range.")
    listed = sum(end - first for first, end in spans)
    if spans and listed != num_samples:
        raise ClusterError(f"{node} holds {count(num_samples, 'sample')} and lists {listed}. Make both agree.")
