"""Runs of one program side by side: strategies, sizes and links, and which of them wins where."""

from dataclasses import dataclass
from typing import Literal

from nfold.core.report import Report


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """One run of a comparison."""

    name: str
    """Strategy and ranks, and the links where they vary: `ring x4`, `ps x3 +1, 50 Mbit/s`."""
    folder: str
    report: Report
    link_bytes_per_s: float | None = None
    """Of every node in both directions; None where links were left as they are."""
    epoch_s: float | None = None
    """Seconds of the steps of an epoch, start-up and evaluation left out; None where that is not known."""
    cost_per_epoch: float | None = None
    """Prices of the nodes in use over that time; None where no price is declared."""
    time_to_loss_s: float | None = None
    """Seconds of training until the mean loss of some steps first reached `Comparison.target_loss`; None: it never
    did."""
    loss_over_time: tuple[tuple[float, float], ...] = ()
    """Seconds of training and the mean loss of some steps by then, a hundred times at most; empty where the run did not
    write down when its steps were done."""
    is_asynchronous: bool = False
    """Its steps are worth less than others, so that only the time to a loss tells it from them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftOut:
    """A run of a comparison that was refused or failed, with the reason."""

    name: str
    """As those that ended have it: strategy, ranks, links where they vary."""
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Architecture:
    """A strategy with its dedicated servers: what competes at each size."""

    strategy: str
    servers: int = 0

    @property
    def name(self) -> str:
        """The strategy and its number of dedicated servers, such as `ring` or `ps +1`."""
        return self.strategy + (f" +{self.servers}" if self.servers else "")

    def sized(self, workers: int) -> str:
        """Return `ring x4`, `ps x3 +1`, or `single` where there is one rank."""
        if workers + self.servers == 1:
            return self.strategy
        return f"{self.strategy} x{workers}" + (f" +{self.servers}" if self.servers else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Throughput:
    """The samples per second of an architecture with one number of workers on one kind of link."""

    architecture: str
    workers: int
    link_bytes_per_s: float | None
    samples_per_s: float
    origin: Literal["measured", "predicted"]
    servers: int = 0
    """Dedicated ones, part of the architecture."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Winner:
    """Who is fastest with some number of workers on some links."""

    link_bytes_per_s: float | None
    workers: int
    architecture: str
    lead: float
    """Its throughput over that of the second; 1 where nobody else ran."""
    second: str = ""
    origin: Literal["measured", "predicted"] = "measured"
    ranked: tuple[str, ...] = ()
    """Everybody who has a figure of this origin there, the fastest first: of others nothing is known there."""
    servers: int = 0
    """Dedicated ones of the winner."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Crossover:
    """From some size on, another architecture wins."""

    link_bytes_per_s: float | None
    workers: int
    """The fewest at which `winner` was seen to win; with `last_workers`, `loser` still did. Between neighbouring sizes
    where both are predicted."""
    last_workers: int
    winner: str
    loser: str
    origin: Literal["measured", "predicted"]
    """Of the figures at `workers`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The runs of one comparison; the first is the plain single-device run that the others are measured against."""

    runs: tuple[Compared, ...]
    target_loss: float | None = None
    """What `Compared.time_to_loss_s` is about; None where the runs have no loss in common."""
    predicted: tuple[Throughput, ...] = ()
    """Of sizes beyond the measured ones, by as much faster or slower as the largest measured one was than predicted."""
    winners: tuple[Winner, ...] = ()
    """By links and workers. Asynchronous runs do not compete: their steps are worth less, so that only the time to a
    loss tells them from others."""
    takeovers: tuple[Crossover, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    """What could not be run, or did not end well."""
    page: str = ""
    """Where it can be looked at; empty where no page was written."""
