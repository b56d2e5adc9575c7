"""Finds modules that must stay whole for a capture to be right, in few trials: those of one class are tried together.

all of the outermost whole                    right, or there is nothing to find
those of a class cut                          right: on to the next class
only the modules inside of them whole         right: on to those, class by class
else                                          the same with either half of them
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Found(Generic[T]):
    """The result of the search: which modules must stay whole."""

    best: T
    """What the last trial that was right returned."""
    wrong: tuple[str, ...]
    """Modules that stay whole since a trial without them was wrong."""
    untried: tuple[str, ...]
    """Modules that stay whole since there were too many trials."""


def fewest_whole(
    outermost: Sequence[str],
    *,
    right: Callable[[Sequence[str]], T | None],
    within: Callable[[str], Sequence[str]],
    kind: Callable[[str], Any],
    most_trials: int,
) -> Found[T] | None:
    """Search. Where one of n modules of a class is wrong it takes about 2 log2(n) trials, where none is a single one.

    Args:
        outermost: modules that can all be whole, by path.
        right: returns a capture with those modules whole; None if it is wrong.
        within: returns the modules right inside of one.
        kind: returns what is equal for modules that are probably right or wrong together.
        most_trials: calls of `right`.

    Returns:
        None where nothing is right even with the outermost whole.
    """
    best = right(outermost)
    if best is None:
        return None
    kept, waiting, trials = list(outermost), _alike(outermost, kind), 1
    while waiting and trials < most_trials:
        group, *waiting = waiting
        inner = [each for path in group for each in within(path)]
        opened = {path for path in group if within(path)}
        cut = [path for path in kept if path not in group]
        ways = [(cut, list[list[str]]())]
        if inner:
            closed = [path for path in group if path not in opened]
            rest = [*_alike(inner, kind), *([closed] if closed else [])]
            ways.append(([*(path for path in kept if path not in opened), *inner], rest))
        for less, next_groups in ways:
            found, trials = right(less), trials + 1
            if found is not None:
                best, kept, waiting = found, less, [*next_groups, *waiting]
                break
        else:
            waiting = [*waiting, *_halves(group)]  # other classes first, as long as there is time
    untried = {path for group in waiting for path in group}
    return Found(best=best, wrong=tuple(sorted(set(kept) - untried)), untried=tuple(sorted(untried.intersection(kept))))


def _alike(paths: Sequence[str], kind: Callable[[str], Any]) -> list[list[str]]:
    groups: dict[Any, list[str]] = {}
    for path in paths:
        groups.setdefault(kind(path), []).append(path)
    return list(groups.values())


def _halves(group: list[str]) -> list[list[str]]:
    middle = len(group) // 2
    return [group[:middle], group[middle:]] if middle else []
