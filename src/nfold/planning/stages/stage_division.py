"""Cuts a row of runs into stages of a pipeline with one or several ranks each: an exact dynamic program.

With F(b, j) the least bottleneck of the first j runs on the first b machines, and C(i, j, a, b) what the stage of
runs [i, j) costs on machines [a, b),

    F(b, j) = min over a < b, i < j of  max(F(a, i), C(i, j, a, b))

and the least bytes under a limit for the bottleneck with + and bytes in place of max and C, where C is within the limit
(PipeDream, Narayanan et al. 2019, section 3.1, with machines in any given order and exact bytes of skip connections).
O(machines x sizes x runs^2), in arrays.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nfold.planning.costs.operator_runs import Array

Costs = Callable[[int, int], Array]
"""Of a stage on machines [a, b): what each span of runs [i, j) costs; infinite where it cannot be."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Runs [start, stop) on machines [first, last)."""

    start: int
    stop: int
    first: int
    last: int


def least_bottleneck_s(costs: Costs, num_runs: int, num_machines: int, sizes: Sequence[int]) -> float:
    """Return the least bottleneck of any division on all machines; infinite where there is none.

    Args:
        costs: seconds of each stage.
        num_runs: in the row.
        num_machines: each in exactly one stage.
        sizes: how many machines a stage may have.
    """
    best = _start(num_runs, num_machines)
    for first, last in groups(num_machines, sizes):
        through = np.maximum(best[first][:, None], costs(first, last))
        best[last] = np.minimum(best[last], through.min(axis=0))
    return float(best[num_machines][num_runs])


def divide(
    costs: Costs, bytes_: Costs, limit_s: float, num_runs: int, num_machines: int, sizes: Sequence[int]
) -> tuple[Stage, ...]:
    """Return the stages that exchange the fewest bytes while none costs more than a limit; empty where there are none.

    Args:
        costs: seconds of each stage.
        bytes_: that each stage adds to a step.
        limit_s: of the costs.
        num_runs: in the row.
        num_machines: each in exactly one stage.
        sizes: how many machines a stage may have.
    """
    best = _start(num_runs, num_machines)
    came_from = np.zeros((num_machines + 1, num_runs + 1, 2), dtype=int)
    for first, last in groups(num_machines, sizes):
        allowed = np.where(costs(first, last) <= limit_s, bytes_(first, last), np.inf)
        through = best[first][:, None] + allowed
        starts = through.argmin(axis=0)
        values = through[starts, np.arange(num_runs + 1)]
        better = values < best[last]
        best[last] = np.where(better, values, best[last])
        came_from[last, better] = np.stack([np.full_like(starts, first), starts], axis=1)[better]
    if not np.isfinite(best[num_machines][num_runs]):
        return ()
    return _retrace(came_from, num_runs, num_machines)


def groups(num_machines: int, sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield all machines [first, last) that may have a stage, in the order in which the program needs them."""
    for last in range(1, num_machines + 1):
        yield from ((last - size, last) for size in sorted(sizes, reverse=True) if size <= last)


def _start(num_runs: int, num_machines: int) -> Array:
    best = np.full((num_machines + 1, num_runs + 1), np.inf)
    best[0, 0] = 0.0
    return best


def _retrace(came_from: NDArray[np.int_], num_runs: int, num_machines: int) -> tuple[Stage, ...]:
    stages: list[Stage] = []
    last, stop = num_machines, num_runs
    while last:
        first, start = (int(value) for value in came_from[last, stop])
        stages.append(Stage(start, stop, first, last))
        last, stop = first, start
    return tuple(reversed(stages))
