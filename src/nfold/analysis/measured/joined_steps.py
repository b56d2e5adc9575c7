"""Traced steps of an asynchronous run -> one stretch of time: messages of one step travel beside those of another."""

from collections.abc import Sequence
from dataclasses import replace

from nfold.core.trace import StepTrace


def joined(steps: Sequence[StepTrace]) -> StepTrace:
    """Return all steps as one, whose times are those of each rank's own clock.

    Raises:
        ValueError: there are none.
    """
    if not steps:
        raise ValueError("no steps can be joined to none")
    spans = []
    for step in steps:
        for span in step.spans:
            begin_s = step.begin_s[span.rank] if step.begin_s else 0.0
            spans.append(replace(span, start_s=span.start_s + begin_s, end_s=span.end_s + begin_s))
    each = tuple(sum(of_rank) for of_rank in zip(*(step.step_s for step in steps), strict=True))
    return replace(steps[0], step_s=each, spans=tuple(spans), begin_s=())
