"""How fast, and how steadily, a rank computes while all the others compute too: all begin together, for as long."""

import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median, quantiles
from typing import Any

import torch

from nfold.capture import program_batches
from nfold.capture.program.building import build_model
from nfold.capture.program.calling import call
from nfold.capture.program.trial import try_step
from nfold.core.profile import Pace
from nfold.machine.limits import available_cores
from nfold.profiling.measure import Clock, Meter
from nfold.profiling.program_profile import undisturbed
from nfold.program import Program

FEWEST_PASSES = 4
"""That the slowest rank shall make."""
MOST_BUDGETS = 4
"""How many budgets that may take."""
QUARTILES_APART = 1.349
"""Standard deviations between the quartiles of a normal distribution."""
_ROUNDS, _BITS = 5, 2000
"""Of bookkeeping: ten milliseconds of it or so."""
_GAUGE_S = 0.2
_ENTRIES = 8


def measure_pace(
    program: Program,
    dataset: Any,
    *,
    chunk_size: int,
    num_threads: int,
    budget_s: float,
    longest_pass_s: float,
    clock: Clock = time.perf_counter,
    processor_clock: Clock = time.thread_time,
    cores: float | None = None,
    device: torch.device | None = None,
) -> Pace:
    """Return the seconds of one forward and backward of a chunk, how much they vary, and of bookkeeping.

    It leaves no trace.

    A mean and not a median: where a node's share of the processor is limited, some passes run into the limit and the
    others do not, and a step pays for all of them. But of what the processor worked for them it is the median: a
    machine's neighbours slow a processor down for a second, which is most of this and little of a run. Passes vary
    there by what the processor gave them: limits are simulated, and must not count twice.

    Args:
        program: the user's.
        dataset: its training data.
        chunk_size: samples of a pass.
        num_threads: of the rank.
        budget_s: for the passes; up to `MOST_BUDGETS` times as long if the slowest rank makes too few otherwise.
        longest_pass_s: that is expected of any rank.
        clock: gives seconds.
        processor_clock: gives seconds in which this thread computed.
        cores: that the rank may use; what it can if not given.
        device: where to compute; the CPU if not given.
    """
    device = device or torch.device("cpu")
    duration_s = min(MOST_BUDGETS * budget_s, max(budget_s, FEWEST_PASSES * longest_pass_s))
    meter = Meter(clock=clock, device=device)
    with undisturbed(num_threads):
        model = build_model(program, device)
        batch = program_batches(program, dataset, device).batch(chunk_size)

        def a_pass() -> None:
            torch.autograd.backward(program.loss(call(model, batch[0]), batch[1]))

        first_bit_s = bookkeeping_s(processor_clock)
        try_step(model, program.loss, batch)
        a_pass()  # the first to add to gradients that are there: three times as long where weights are large
        times_s, worked_s = [meter.now()], [processor_clock()]
        while len(times_s) == 1 or times_s[-1] - times_s[0] < duration_s:
            a_pass()
            times_s.append(meter.now())
            worked_s.append(processor_clock())
    mean_s = (times_s[-1] - times_s[0]) / (len(times_s) - 1) * _typical(worked_s)
    is_limited = (available_cores().cores if cores is None else cores) < 1 and device.type == "cpu"
    return Pace(
        mean_s=mean_s,
        deviation_s=mean_s * _variation(worked_s if is_limited else times_s),
        bookkeeping_s=min(first_bit_s, bookkeeping_s(processor_clock)),  # a neighbour may have slowed down one of them
    )


def bookkeeping_s(processor_clock: Clock = time.thread_time) -> float:
    """Return the processor seconds of a bit of bookkeeping: by how much machines differ in what surrounds a task."""
    return median(_bits_s(processor_clock) for _ in range(_ROUNDS)) / _BITS


def bit_s(clock: Clock = time.perf_counter) -> float:
    """Return the seconds that a bit of bookkeeping takes a node now, with what others take of its processors.

    It lasts for a fifth of a second: long enough to meet the limit of a node that has a part of a core.
    """
    begin_s, rounds = clock(), 0
    while clock() - begin_s < _GAUGE_S:
        _bits_s(clock)
        rounds += 1
    return (clock() - begin_s) / (rounds * _BITS)


def _bits_s(processor_clock: Clock) -> float:
    changed, counts, last = threading.Condition(), dict.fromkeys(range(_ENTRIES), 0), list[int]()
    begin_s = processor_clock()
    for bit in range(_BITS):
        with changed:
            counts[bit % _ENTRIES] += 1
            last.append(bit)
            if len(last) > _ENTRIES:
                last.pop()
            changed.notify_all()
    return processor_clock() - begin_s


def _typical(ends_s: Sequence[float]) -> float:
    """Median over mean of passes, 1 at most; 1 where nothing was counted."""
    passes_s = [end_s - begin_s for begin_s, end_s in pairwise(ends_s)]
    return min(1.0, median(passes_s) / fmean(passes_s)) if sum(passes_s) > 0 else 1.0


def _variation(ends_s: Sequence[float]) -> float:
    """Standard deviation over mean as the quartiles tell it: a single interruption must not count. 0 of too few."""
    passes_s = [end_s - begin_s for begin_s, end_s in pairwise(ends_s)]
    if len(passes_s) < FEWEST_PASSES:
        return 0.0
    low, _, high = quantiles(passes_s, n=4)
    return (high - low) / QUARTILES_APART / fmean(passes_s)
