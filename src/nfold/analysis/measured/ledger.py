"""The wall time of a run by phase -> the same time with the steps taken apart.

A step lasts as long as its last worker, who waits for nobody. So its parts, step after step, are where the time of the
steps went; what it worked longer than a typical other worker is time in which the others waited for it.

    steps  =  compute + input + update + between tasks     of a typical worker, at most the last one's own
            + waiting for rank k                           what the last one worked beyond that
            + network, PLACE                               its exposed communication

What comes after the ledger is made cannot be in it: writing the trace, writing report and page once more with it in
them, printing, and the end of the process. How long a disk will take is not known beforehand, and an entry that is
guessed would no longer be a measurement. It is a twentieth of the command's time and half a second at most, to which
`tests/cli/test_printed_and_left.py` holds it.
"""

from collections.abc import Mapping, Sequence
from math import fsum
from statistics import fmean, median

from nfold.analysis.measured.breakdown import WorkerStep, peer_waits

STEPS = "steps"
"""The phase that is taken apart."""
_PARTS = {"compute_s": "compute", "input_s": "input", "update_s": "update", "other_s": "between tasks"}


def ledger(
    steps: Sequence[WorkerStep],
    phases: Mapping[str, float],
    network: str,
    *,
    is_asynchronous: bool = False,
    held_share: float = 0.0,
) -> dict[str, float]:
    """Return seconds of the whole run by what they went to; they sum to the phases' sum.

    Args:
        steps: of the whole run, those that warm up too: they are slow in parts of their own.
        phases: its wall time, with the steps as one entry.
        network: place that holds communication up; empty: it is not known.
        is_asynchronous: a step then is that of a mean worker.
        held_share: of what it waits for servers, what it waits for slower workers because staleness is bounded.
    """
    if STEPS not in phases:
        return dict(phases)
    place = f"network, {network}" if network else "network"
    parts = _total(
        [_mean_worker(step, place, held_share) if is_asynchronous else _last_worker(step, place) for step in steps]
    )
    whole_s = fsum(parts.values()) or 1.0
    spent = {name: value / whole_s * phases[STEPS] for name, value in parts.items() if value > 0}
    spent["between tasks"] = spent.get("between tasks", 0.0) + phases[STEPS] - fsum(spent.values())
    before = {name: value for name, value in phases.items() if name != STEPS}
    return {**before, **spent}


def _total(each: Sequence[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for parts in each:
        for name, value in parts.items():
            total[name] = total.get(name, 0.0) + value
    return total


def _mean_worker(step: WorkerStep, network: str, held_share: float) -> dict[str, float]:
    found = {name: fmean(max(0.0, getattr(parts, field)) for parts in step) for field, name in _PARTS.items()}
    waited_s = fmean(parts.communication_s for parts in step)
    return {network: (1 - held_share) * waited_s, **found, "waiting for slower workers": held_share * waited_s}


def _last_worker(step: WorkerStep, network: str) -> dict[str, float]:
    waits = peer_waits(step)
    last = step[waits.index(min(waits))]
    others = [parts for parts in step if parts.rank != last.rank]
    found, beyond = {network: last.communication_s}, 0.0
    for field, name in _PARTS.items():
        own = max(0.0, getattr(last, field))
        typical = min(own, median(getattr(parts, field) for parts in others)) if others else own
        found[name] = typical
        beyond += own - typical
    return {**found, f"waiting for rank {last.rank}": beyond}
