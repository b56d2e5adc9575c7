"""A run whose links changed on the way -> what was measured since then: the rest tells of links that are gone. Pure."""

from dataclasses import replace

from nfold.core.trace import Trace


def since_change(trace: Trace) -> Trace:
    """Return what was measured since the links changed for the last time; all of it where they did not."""
    first = trace.since_step
    if not first:
        return trace
    before = first - min((parts.step for parts in trace.parts), default=first)
    return replace(
        trace,
        parts=tuple(parts for parts in trace.parts if parts.step >= first),
        steps=tuple(step for step in trace.steps if step.step >= first),
        reductions=tuple(parts for parts in trace.reductions if parts.step >= first),
        samples=tuple(sample for sample in trace.samples if sample.at_s - sample.span_s >= trace.since_s),
        num_steps=None if trace.num_steps is None else trace.num_steps - before,
    )
