"""Spans of an asynchronous run -> what its workers waited for slower ones, because staleness is bounded.

    worker   ask ---.                         .--- values
    server          '--- held ... update ... answer

An answer is held while the server applies gradients, and until all workers are near enough. So what a request waits at
a server beyond its updates is the wait for slower workers. All is read off the server's own clock.
"""

from collections import defaultdict
from collections.abc import Iterator
from statistics import fmean

from nfold.analysis.measured.arrivals import union_s
from nfold.analysis.measured.joined_steps import joined
from nfold.core.plan import Plan
from nfold.core.trace import Span, StepTrace, Trace


def bound_wait_s(plan: Plan, trace: Trace) -> float:
    """Return seconds per step that a mean worker waited for slower ones; 0.0 where nothing bounds staleness."""
    return fmean(bound_waits_s(plan, trace).values() or (0.0,))


def bound_waits_s(plan: Plan, trace: Trace) -> dict[int, float]:
    """Return seconds per step that each worker waited for slower ones; empty where nothing bounds staleness."""
    if plan.asynchrony is None or plan.asynchrony.bound is None or not trace.steps:
        return {}
    held_s: dict[int, float] = defaultdict(float)
    for worker, seconds in _held(joined(trace.steps)):
        held_s[worker] += seconds
    return {worker: seconds / len(trace.steps) for worker, seconds in held_s.items()}


def told_apart(exposed_s: float, peer_wait_s: float, held_s: float) -> tuple[float, float]:
    """Return exposed communication and the wait for peers, with what servers held back counted as the latter.

    Args:
        exposed_s: exposed communication as workers notice it, who wait for servers alone.
        peer_wait_s: wait for peers without that.
        held_s: what they were held there for slower workers.
    """
    waited_s = min(exposed_s, held_s)
    return exposed_s - waited_s, peer_wait_s + waited_s


def _held(step: StepTrace) -> Iterator[tuple[int, float]]:
    """Yield a worker and how long its request was held, request by request: each waits for one answer at a time."""
    asks: dict[tuple[int, int], list[Span]] = defaultdict(list)
    answers: dict[tuple[int, int], list[Span]] = defaultdict(list)
    for span in sorted(step.spans, key=lambda span: span.start_s):
        if span.purpose == "pull" and span.name.startswith("ask") and span.kind == "RECV":
            asks[span.rank, span.peer].append(span)
        elif span.purpose == "pull" and span.name.startswith("values") and span.kind == "SEND":
            answers[span.rank, span.peer].append(span)
    for (server, worker), asked in asks.items():
        for ask, answer in zip(asked, answers[server, worker], strict=False):
            yield worker, _beyond_updates_s(step, server, ask.end_s, answer.start_s)


def _beyond_updates_s(step: StepTrace, server: int, begin_s: float, end_s: float) -> float:
    updates = [span for span in step.spans if span.rank == server and span.kind == "UPDATE"]
    during = [(max(begin_s, span.start_s), min(end_s, span.end_s)) for span in updates]
    return max(0.0, end_s - begin_s - union_s([(start, end) for start, end in during if end > start]))
