"""Throughputs of architectures at several sizes and links -> who wins where, and from which size on somebody else does.

Measured figures count where there are some. Beyond them predicted ones do, and are marked as such: measured and
predicted figures are never ranked against each other. Who has no figure at a size is not beaten there.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from nfold.core.findings.comparison import Crossover, Throughput, Winner

TIE = 1.02
"""Architectures closer than that are not told apart."""


def winners(points: Iterable[Throughput]) -> tuple[Winner, ...]:
    """Return the fastest of every size and link; sizes that were measured have no predicted winner."""
    places: dict[tuple[float, int], list[Throughput]] = {}
    for point in points:
        places.setdefault((point.link_bytes_per_s or 0.0, point.workers), []).append(point)
    return tuple(_winner(places[place]) for place in sorted(places))


def _winner(points: Sequence[Throughput]) -> Winner:
    measured = [point for point in points if point.origin == "measured"]
    ranked = sorted(measured or points, key=lambda point: -point.samples_per_s)
    first, second = ranked[0], ranked[1] if len(ranked) > 1 else None
    return Winner(
        link_bytes_per_s=first.link_bytes_per_s,
        workers=first.workers,
        architecture=first.architecture,
        lead=first.samples_per_s / second.samples_per_s if second else 1.0,
        second=second.architecture if second else "",
        origin=first.origin,
        ranked=tuple(point.architecture for point in ranked),
        servers=first.servers,
    )


def takeovers(won: Sequence[Winner]) -> tuple[Crossover, ...]:
    """Return where, from one size to the next on equal links, another architecture wins; ties take nothing over.

    Both must have been ranked at both sizes: who could not be predicted at the larger one has not lost there.
    """
    found = []
    for link in dict.fromkeys(winner.link_bytes_per_s for winner in won):
        clear = [winner for winner in won if winner.link_bytes_per_s == link and winner.lead >= TIE]
        for before, after in pairwise(sorted(clear, key=lambda winner: winner.workers)):
            if before.architecture != after.architecture and _met(before, after):
                found.append(
                    Crossover(
                        link_bytes_per_s=link,
                        workers=after.workers,
                        last_workers=before.workers,
                        winner=after.architecture,
                        loser=before.architecture,
                        origin=after.origin,
                    )
                )
    return tuple(found)


def _met(before: Winner, after: Winner) -> bool:
    """Whether both had a figure at both sizes; more servers than workers are never tried, because they cannot help."""
    too_many_servers = after.servers > before.workers
    return before.architecture in after.ranked and (after.architecture in before.ranked or too_many_servers)


def narrowed(takeover: Crossover, is_ahead: Callable[[int], bool]) -> Crossover:
    """Return the takeover between two neighbouring sizes; asks about O(log(sizes between)) of them.

    Args:
        takeover: between any two sizes.
        is_ahead: whether its winner is faster than its loser with some number of workers. Where that changes more than
            once, one of the changes is found.
    """
    last, first = takeover.last_workers, takeover.workers
    while first - last > 1:
        middle = (last + first) // 2
        if is_ahead(middle):
            first = middle
        else:
            last = middle
    return replace(takeover, workers=first, last_workers=last)
