"""A simulated step -> the parts of a measured one, so that prediction and measurement compare part by part."""

from collections.abc import Sequence

from nfold.analysis.measured.breakdown import mean_parts
from nfold.core.report import TimeParts
from nfold.core.trace import StepParts, StepTrace


def parts_of(step: StepTrace, samples: Sequence[int]) -> tuple[StepParts, ...]:
    """Return where each rank's time goes if every step is like this one.

    What a rank spends before its first task belongs to none. A rank that is done before the others waits for them in
    the next step, so every rank's step takes as long as the slowest one's.

    Args:
        step: of one simulated step.
        samples: of each rank that are counted in this step.
    """
    step_s = max(step.step_s)
    begun_s: dict[int, float] = {}
    busy = [dict.fromkeys(("LOAD", "F", "B", "UPDATE", "SEND", "RECV"), 0.0) for _ in step.step_s]
    sent = [0] * len(step.step_s)
    for span in step.spans:
        begun_s[span.rank] = min(begun_s.get(span.rank, step_s), span.start_s)
        busy[span.rank][span.kind] += span.end_s - span.start_s
        sent[span.rank] += span.payload_bytes if span.kind == "SEND" else 0
    return tuple(
        StepParts(
            step=step.step,
            rank=rank,
            step_s=step_s,
            input_s=own["LOAD"],
            forward_s=own["F"],
            backward_s=own["B"],
            update_s=own["UPDATE"],
            communication_s=max(
                0.0, step_s - begun_s.get(rank, 0.0) - own["LOAD"] - own["F"] - own["B"] - own["UPDATE"]
            ),
            other_s=begun_s.get(rank, 0.0),
            sent_bytes=sent[rank],
            samples=samples[rank],
        )
        for rank, own in enumerate(busy)
    )


def simulated_time(step: StepTrace, workers: int) -> TimeParts:
    """Return the mean parts of the workers' step, without dedicated servers and workers that have nothing to do."""
    busy = {span.rank for span in step.spans}
    every = parts_of(step, [0] * len(step.step_s))[:workers]
    return mean_parts((tuple(own for own in every if own.rank in busy) or every,))
