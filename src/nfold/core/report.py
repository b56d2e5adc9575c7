"""What a run amounted to: how fast, what held it back, and how far the prediction was off."""

from dataclasses import dataclass, field
from typing import Literal

from nfold.core.member_event import MemberEvent

VerdictClass = Literal[
    "compute", "link", "transport", "latency", "bubble", "peer wait", "server", "input", "memory", "small batch"
]


LEAST_STEPS = 5
"""Fewer say little of a run's throughput."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Quantiles:
    """Median and 95th percentile over the steps measured."""

    p50: float
    p95: float


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeParts:
    """The mean seconds of a step by what they were spent on, over ranks and steps."""

    compute_s: float
    exposed_communication_s: float
    """Waiting for bytes, the wait for slower ranks left out."""
    peer_wait_s: float
    """Waiting for a slower rank to be ready."""
    input_s: float
    update_s: float
    other_s: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Gain:
    """A change to a run, and the speedup that simulation predicts for it."""

    change: str
    """In words: `halve the bytes (bf16)`, `--strategy weighted`, `a 300 Mbit/s uplink for n2`."""
    speedup: float
    """Step time as it is over step time with the change."""
    command: str = ""
    """What to type, where the change is a matter of flags."""
    is_rough: bool = False
    """Of cells on other ranks: what they take there follows from a run that never played it, often a quarter off."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """The one cause that holds the run back most, in a sentence with its numbers and advice."""

    kind: VerdictClass = field(metadata={"json": "class"})
    place: str
    """Rank, node or link: `rank 2 on n2`, `n2`, `n2 uplink`, `n2 downlink`."""
    value: float
    """Of a link: its measured speed in bytes/s as links are sold, headers included; within a node that of payload."""
    unit: str
    text: str
    """One sentence for people."""
    sub_cause: str = ""
    """Why: `incast`, `summing`, `neighbours`, `quota`, `slower processor`, `more samples` ..; empty where the class
    says it all."""
    advice: str = ""
    gains: tuple[Gain, ...] = ()
    """Everything that was simulated and wins at least 2 %, the largest first; where memory lacks, also what needs less
    of it, at whatever cost."""
    useful_workers: int | None = None
    """More workers than these, on nodes like those in use, gain less than 2 %; None where no such number was found."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cause:
    """A cause of lost time: the seconds that it costs in each step, and the speedup without it."""

    kind: str
    place: str
    lost_s: float
    """Seconds per step. Causes do not overlap and are a step together, at most; but `shared cores` is a part of
    `compute`."""
    share: float
    """Of the step."""
    what_if_speedup: float | None
    """Step time with it over without it, simulated; None where that was not simulated, or where the simulated step is
    not like the run's. Where others wait because of it, more than its share alone would win; never more than that and
    all waiting together."""
    evidence: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ReductionSplit:
    """What summing one bucket took in a mean step on a mean rank, including what computing hid."""

    reduction: str
    queue_s: float
    """Its gradients were complete, and others' messages were ahead of it."""
    transfer_s: float
    """The least of its durations over the ranks; with a server, summing and updating there included."""
    peer_wait_s: float
    """What the rank took beyond that: a peer's gradients were not complete yet."""
    sent_bytes: float

    @property
    def total_s(self) -> float:
        """The seconds from the complete gradients of a rank to their sum."""
        return self.queue_s + self.transfer_s + self.peer_wait_s


@dataclass(frozen=True, kw_only=True, slots=True)
class RankLoad:
    """What one rank and its node did, as means over a run. Processor use is in cores: 1.0 is one core, always busy."""

    rank: int
    node: str
    compute_cores: float
    communication_cores: float
    throttled_share: float
    """Of the time: ready to run, but the share of the processor was used up. The kernel adds up what each of its
    processors kept back, which can be more than the time that there was; here it is at most all of it."""
    steal_cores: float
    """Taken from the node by its hypervisor."""
    neighbour_cores: float
    """Taken by other programs on the node; where nodes are emulated, on the machine that they share."""
    peak_rss_bytes: int
    disk_bytes_per_s: float
    """Read from disks and written to them; what the kernel still has in memory costs no disk."""
    sent_bytes_per_s: float
    """By the node's network interface, headers included."""
    received_bytes_per_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictedStep:
    """What the plan predicted for a step, and how far the measured step was off."""

    step_s: float
    sent_bytes_per_step: int
    step_error: float
    """(predicted - measured) / measured."""
    time: TimeParts | None = None
    """The parts of the predicted step, beside `Report.time`: where a wrong prediction is wrong. None where the run's
    profiles are not known any more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacedShare:
    """What one node did with data that live on nodes."""

    node: str
    held: int
    """Samples that lived there at first."""
    holds: int
    """That it trains on in each epoch, once all has moved; 0: it gave all away, and computes nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataPlaces:
    """Where the data of a run live, and what moved for that."""

    method: str
    nodes: tuple[PlacedShare, ...]
    before_bytes: int
    """That came to nodes before training; what was there already did not travel."""
    before_s: float
    beside_bytes: int
    """The same while training; in a run that went on elsewhere, since then."""
    predicted_s: float | None
    """Of moving before training."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """The outcome of one run."""

    strategy: str
    world_size: int
    workers: int
    servers: int
    chunks: int
    batch_size: int
    num_steps: int
    """Steps that the figures rest on; the first ones, which warm up, are left out. In a long run the figures are of
    every second, fourth .. of them."""
    step_s: Quantiles
    samples_per_s: float
    efficiency: float
    """Throughput over the sum of what each node in use does alone with a plain single-device run. On one machine this
    is the speed-up over plain PyTorch. Where no such run was measured, what the profiles predict for one stands
    in. Of few steps (`is_short`) it says little."""
    sent_bytes_per_step: int
    """Payload over all ranks, full steps."""
    bus_bandwidth_bytes_per_s: float | None
    """Bytes that each worker must send, over the time that the network was used; None on one rank."""
    time: TimeParts
    peak_rss_bytes: int
    """Largest of all ranks."""
    worker_rss_bytes: int
    server_rss_bytes: int | None
    cpu_cores: float
    """Processor seconds per second, all ranks together."""
    final_loss: float | None
    metrics: dict[str, float | None]
    """Of the last evaluation; None: NaN or infinite."""
    verdict: Verdict
    causes: tuple[Cause, ...]
    predicted: PredictedStep
    ledger: dict[str, float] = field(default_factory=dict)
    """Seconds of the whole run by what they went to; they sum to its wall time."""
    next_command: str = ""
    since_step: int = 0
    """Where links changed in the middle of the run: the first step after the last change. All figures but the ledger
    are of the steps from there on, and the prediction is for the links as they are since. 0: they never changed."""
    staleness: dict[str, int] = field(default_factory=dict)
    """Of asynchronous runs: how many gradients were applied that were so many updates old."""
    busiest_sent_bytes_per_step: int | None = None
    """Payload of the rank that sends most, full steps; None in reports of older versions."""
    reductions: tuple[ReductionSplit, ...] = ()
    """Every bucket's queue, transfer and peer wait, the one that takes longest first; empty where it was not measured,
    and in asynchronous runs."""
    loads: tuple[RankLoad, ...] = ()
    """Processors, memory, disk and network of each rank that was sampled."""
    places: DataPlaces | None = None
    """None: every rank reads all data."""
    events: tuple[MemberEvent, ...] = ()
    """What changed who trains, or how, in order."""

    @property
    def ages(self) -> dict[int, int]:
        """The number of gradients by their staleness in updates; empty where steps are synchronous."""
        return {int(age): number for age, number in self.staleness.items()}

    @property
    def is_short(self) -> bool:
        """Whether its steps are too few to be compared with other runs: single ones of a shared machine differ by half,
        so their efficiency would often be above 100 %."""
        return self.num_steps < LEAST_STEPS
