"""How a program would train on other numbers of nodes, and how many of them are worth having."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class Bottleneck:
    """What limits the time of a step that was predicted and not measured."""

    kind: Literal["computing", "link", "links", "messages"]
    """`link`: one is full; `links`: several alike are; `messages`: ranks wait for those of others, and no link is
    full."""
    node: str = ""
    """Whose link it is, or who computes longer than others; empty: no node stands out."""
    side: Literal["", "uplink", "downlink"] = ""
    share: float
    """Of the step: how long that link is busy, that node computes, or ranks wait."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """The predicted time and cost of a whole run on one number of nodes."""

    architecture: str
    """`ring x3`, `single`."""
    chunks: int
    idle: tuple[str, ...]
    """Nodes that have nothing to compute, since a step would be no faster with them."""
    step_s: float
    run_s: float
    """All steps; starting, evaluating and writing checkpoints come on top."""
    samples_per_s: float
    speedup: float | None
    """Over the first node alone; None: the program cannot run there."""
    cost: float | None
    """Prices of all nodes over `run_s`; None: none has a price."""
    bottleneck: Bottleneck


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """A number of nodes that was asked about, with its forecast or the reason why there is none."""

    nodes: int
    num_measured: int
    """How many of them are there; the others are taken to be like these, again in their order."""
    forecast: Forecast | None = None
    """None: nothing can run there."""
    note: str = ""
    """Why there is no forecast, or why no plan has work for all of the nodes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """How many nodes a program should have, and what each size that was looked at would take."""

    measured: tuple[str, ...]
    """Nodes whose speed and links were measured, in the order in which a run would take them."""
    batch_size: int
    total_steps: int
    sizes: tuple[Size, ...]
    """Ascending."""
    stop_at: int | None
    """The fewest nodes than which no larger number that was asked about saves 5 % of a step; None: nothing can run."""
    quickest: int | None
    cheapest: int | None
    """None: no node has a price."""
    within_s: float | None = None
    """In which the run should be done."""
    in_time: int | None = None
    """The fewest nodes that do it; None: none does, or nobody asked."""

    def size(self, nodes: int) -> Size:
        """Return what was found for a number of nodes that was asked about."""
        return next(each for each in self.sizes if each.nodes == nodes)
