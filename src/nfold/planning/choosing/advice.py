"""What to ask for instead of what was refused: only what was planned, and found possible, is advised. Pure."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product

from nfold.core.chunks import filled_chunks
from nfold.errors import PlanError
from nfold.planning.asynchronous.asynchronous_strategies import check_staleness
from nfold.planning.choosing.strategies import AUTO
from nfold.planning.inputs.facts import Facts

MOST_ADVISED = 3
MOST_TRIED = 40
"""Changes that are planned before nothing is advised; a plan takes milliseconds to a second."""
_INSTEAD = ("ring", "ps", "pipeline", "hybrid", "hypergraph", AUTO)
"""What is looked at in place of another strategy, the quickest to plan first."""

_ORDER = ("servers", "chunks", "strategy", "workers")
"""What is changed first: all workers are kept where that is possible."""
IsPossible = Callable[[Facts, str], bool]


class Refused(PlanError):
    """A plan that cannot be made.

    Attributes:
        reason: why, without what to do.
    """

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(f"{reason.rstrip('.')}. {advice}" if advice else reason)
        self.reason = reason


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """Wishes that replace those of a question; None: the wish stays as it was."""

    workers: int | None = None
    servers: int | None = None
    chunks: int | None = None
    strategy: str | None = None

    @property
    def flags(self) -> str:
        """The flags that a user types for the change."""
        pairs = (
            ("-n", self.workers),
            ("--servers", self.servers),
            ("--chunks", self.chunks),
            ("--strategy", self.strategy),
        )
        return " ".join(f"{flag} {value}" for flag, value in pairs if value is not None)

    @property
    def parts(self) -> frozenset[str]:
        """The names of the wishes that change."""
        names = ("workers", "servers", "chunks", "strategy")
        return frozenset(name for name in names if getattr(self, name) is not None)

    def of(self, facts: Facts) -> Facts:
        """Return a question with these wishes instead of its own."""
        workers = facts.workers if self.workers is None else self.workers
        servers = facts.servers if self.servers is None else self.servers
        return replace(
            facts,
            workers=workers,
            servers=servers,
            nodes=facts.nodes[: workers + servers],
            chunks=facts.chunks if self.chunks is None else self.chunks,
        )


def advise(facts: Facts, strategy: str, is_possible: IsPossible) -> str:
    """Return a sentence with what is possible in place of what was asked for; empty if nothing was found.

    Args:
        facts: the question that was refused.
        strategy: that was asked for.
        is_possible: plans a question.
    """
    found: list[Change] = []
    tried = 0
    for change in changes(facts, strategy):
        is_more = any(change.parts > known.parts for known in found)
        is_again = sum(change.parts == known.parts for known in found) > ("strategy" in change.parts)
        if is_more or is_again:
            continue
        if is_possible(change.of(facts), change.strategy or strategy):
            found.append(change)
        tried += 1
        if len(found) == MOST_ADVISED or tried == MOST_TRIED:
            break
    if not found and strategy != "single" and _understands(facts, "single"):
        found = [change for change in (_alone(facts),) if is_possible(change.of(facts), "single")]
    if not found:
        return ""
    *others, last = (change.flags for change in found)
    return f"Use {', '.join(others)} or {last}." if others else f"Use {last}."


def _alone(facts: Facts) -> Change:
    """Return what a program that cannot be spread needs, however many changes that are."""
    is_cut = not facts.chunks_are_settled and (facts.chunks or 1) > 1
    return Change(
        workers=1 if facts.workers > 1 else None,
        servers=0 if facts.servers else None,
        chunks=1 if is_cut else None,
        strategy="single",
    )


def changes(facts: Facts, strategy: str) -> Iterator[Change]:
    """Yield the changes of a question that are worth trying, those of one wish first."""
    every = product(
        (None, *_strategies(facts, strategy)), (None, *_chunks(facts)), (None, *_servers(facts)), (None, *_fewer(facts))
    )
    found = [
        _with_one_name(Change(strategy=name, chunks=chunks, servers=servers, workers=workers), facts)
        for name, chunks, servers, workers in every
        if (facts.servers if servers is None else servers) <= (facts.workers if workers is None else workers)
    ]
    found = [change for change in dict.fromkeys(found) if change.strategy != strategy]
    found.sort(key=lambda change: (len(change.parts), *(name not in change.parts for name in _ORDER)))
    return iter(found[1:])


def _with_one_name(change: Change, facts: Facts) -> Change:
    """Call another strategy for one process `single`: alone they all train alike."""
    other = change.of(facts)
    is_alone = change.strategy is not None and (other.workers, other.servers) == (1, 0)
    return replace(change, strategy="single") if is_alone else change


def _strategies(facts: Facts, strategy: str) -> list[str]:
    return [name for name in _INSTEAD if name != strategy and strategy != AUTO and _understands(facts, name)]


def _understands(facts: Facts, strategy: str) -> bool:
    """Whether what was asked of staleness makes sense for a strategy."""
    try:
        check_staleness(strategy, facts.staleness, aware=facts.staleness_aware)
    except PlanError:
        return False
    return True


def _chunks(facts: Facts) -> list[int]:
    if facts.chunks_are_settled:
        return []
    asked, least = facts.chunks or facts.workers, facts.graph.least_chunk
    fine = filled_chunks(facts.batch_size, 4 * asked, least)
    tried = (facts.workers, filled_chunks(facts.batch_size, asked, least), 2 * asked, fine, 1)
    return [count for count in dict.fromkeys(tried) if count != facts.chunks and count <= facts.batch_size]


def _servers(facts: Facts) -> list[int]:
    return [count for count in dict.fromkeys((facts.servers - 1, facts.servers // 2, 0)) if 0 <= count < facts.servers]


def _fewer(facts: Facts) -> list[int]:
    shared = min(facts.chunks or facts.workers, filled_chunks(facts.batch_size, facts.workers, facts.graph.least_chunk))
    runs = len(facts.graph.operators)
    tried = sorted({shared, runs, facts.workers - 1, facts.workers // 2, 1}, reverse=True)
    return [count for count in tried if 1 <= count < facts.workers]
