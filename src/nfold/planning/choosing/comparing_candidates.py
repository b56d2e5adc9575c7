"""Says why a candidate lost, and which candidates nobody beats in everything: time, bytes and memory."""

from collections.abc import Callable, Sequence

from nfold.core.plan import Prediction
from nfold.planning.choosing.candidates import Candidate
from nfold.planning.inputs.facts import Proposal

TIE = 1.01
"""Step times that differ by less are a tie."""
NOTABLE = 0.05
"""Share of bytes or memory that is worth a word."""


def undominated(predictions: Sequence[Prediction]) -> tuple[bool, ...]:
    """Say of each prediction whether no other is as good in step time, bytes and memory, and better in one.

    O(predictions^2).
    """
    points = [_point(prediction) for prediction in predictions]
    return tuple(not any(_beats(other, point) for other in points) for point in points)


def _point(prediction: Prediction) -> tuple[float, int, int]:
    return prediction.step_s, prediction.sent_bytes_per_step, max(prediction.peak_memory_bytes)


def _beats(one: tuple[float, int, int], other: tuple[float, int, int]) -> bool:
    return one != other and all(mine <= theirs for mine, theirs in zip(one, other, strict=True))


def comparison(
    lost: tuple[Prediction, Proposal], won: tuple[Prediction, Proposal], winner: str, *, forced: bool
) -> str:
    """Say how a prediction compares with the winner's.

    Args:
        lost: what was predicted of which proposal.
        won: the same of the winner.
        winner: its strategy.
        forced: it was asked for by name.
    """
    mine, best = lost[0].step_s, won[0].step_s
    if max(mine, best) <= TIE * min(mine, best):
        return f"a tie with {winner}{_savings(lost[0], won[0])}"
    if forced and mine < best:
        return f"predicted {_times(best, mine)} as fast, but {winner} was asked for"
    slower = f"predicted {_times(mine, best)} the step time of {winner}"
    workers, fewer = lost[1].workers, won[1].workers
    if workers <= fewer or mine < best:
        return f"{slower}{_savings(lost[0], won[0])}"
    waiting = lost[0].exposed_communication_s / mine
    return f"{slower} on {fewer} of {workers} workers, since {waiting:.0%} of it would be waiting for messages"


def fewer_workers(
    asked: int, winner: Candidate, best: Candidate | None, why_none: str, *, has_all: Callable[[str], bool]
) -> str:
    """Say why a plan leaves workers idle that were asked for.

    Args:
        asked: workers.
        winner: what was taken.
        best: the fastest on all of them; None: nothing can run there.
        why_none: then why not.
        has_all: whether a strategy that is asked for by name gives all of them something to do.
    """
    used = winner.proposal.workers
    if best is None:
        return f"only {used} of {asked} workers train, since nothing can run on {asked}: {why_none}"
    mine, theirs = winner.predicted, best.predicted
    waiting = theirs.exposed_communication_s / theirs.step_s if theirs.step_s else 0.0
    return (
        f"only {used} of {asked} workers train: a step is predicted to take "
        f"{mine.step_s * 1e3:.1f} ms on {used} ({winner.strategy}) and {theirs.step_s * 1e3:.1f} ms on {asked} "
        f"({best.strategy}, {waiting:.0%} of it waiting for messages)"
        f"{f'. Use --strategy {best.strategy} to have all.' if has_all(best.strategy) else ''}"
    )


def _savings(lost: Prediction, won: Prediction) -> str:
    """What the loser would need less of."""
    pairs = {
        "bytes": (lost.sent_bytes_per_step, won.sent_bytes_per_step),
        "memory": (max(lost.peak_memory_bytes), max(won.peak_memory_bytes)),
    }
    less = [f"{1 - mine / best:.0%} less {what}" for what, (mine, best) in pairs.items() if mine < (1 - NOTABLE) * best]
    return f", with {' and '.join(less)}" if less else ""


def _times(longer: float, shorter: float) -> str:
    return f"{longer / shorter:.2f}x" if shorter > 0 else "many times"
