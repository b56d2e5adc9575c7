"""A run while it goes on, as a screenful of text: how far, what its time goes to, each rank, what changed."""

from collections.abc import Callable, Sequence

from nfold.core.member_event import MemberEvent
from nfold.core.report import TimeParts
from nfold.core.run_state import LinkState, ListedRun, RankState, RunState
from nfold.core.text.units import clock, count, figure, link_rate, percent, size
from nfold.view.progress_line import loss_text
from nfold.view.rendering import PLAIN, Look, or_none, render, time_of_day
from nfold.view.tables import PARTS

SILENT_S = 10.0
"""A state that is older is told with its age."""
_BAR_COLUMNS = 30
_MOST_EVENTS = 6
_MOST_CHANGES = 4
RANK_COLUMNS: dict[str, Callable[[RankState], str]] = {
    "rank": lambda rank: f"{rank.rank}" if rank.role == "worker" else f"{rank.rank} server",
    "node": lambda rank: rank.node,
    "compute": lambda rank: or_none(rank.compute_share, percent),
    "messages": lambda rank: or_none(rank.communication_share, percent),
    "cores": lambda rank: or_none(_cores(rank), figure),
    "memory": lambda rank: or_none(rank.rss_bytes, size),
    "sends": lambda rank: or_none(rank.sent_bytes_per_s, link_rate),
    "receives": lambda rank: or_none(rank.received_bytes_per_s, link_rate),
}


def top_text(
    state: RunState,
    run: ListedRun | None,
    *,
    folder: str,
    now: float,
    most_ranks: int | None = None,
    look: Look = PLAIN,
) -> str:
    """Return what there is to see of a run.

    Args:
        state: as its command wrote it down.
        run: as it is listed; None: it is not.
        folder: of the run.
        now: seconds since 1970.
        most_ranks: that are shown; None: all.
        look: where it will be read.
    """
    sections = [
        "\n".join(line for line in (_head(state, run, folder, now), _progress(state), _figures(state)) if line),
        "" if state.parts is None else _parts_text(state.parts),
        _events_text(state),
        _ledger_text(state.ledger),
        _ranks_text(state.ranks, most_ranks, look),
        _links_text(state.links, look),
    ]
    return "\n\n".join(section.rstrip("\n") for section in sections if section) + "\n"


def has_ended(state: RunState) -> bool:
    """Whether its command has said how it ended."""
    return state.phase in ("done", "stopped", "failed")


def _head(state: RunState, run: ListedRun | None, folder: str, now: float) -> str:
    number = f"run {run.number}: " if run is not None else ""
    servers = f" and {count(state.servers, 'server')}" if state.servers else ""
    plan = f", {state.strategy} with {count(state.workers, 'worker')}{servers}" if state.strategy else ""
    phase = "lost: its process is gone" if run is not None and run.ending == "lost" else state.phase
    age = f", last heard {clock(now - state.at)} ago" if not has_ended(state) and now - state.at > SILENT_S else ""
    return f"{number}{folder}, {phase}{plan}{age}"


def _progress(state: RunState) -> str:
    if not state.total_steps:
        return ""
    done = state.step / state.total_steps
    left = f", {clock(state.left_s)} left" if state.left_s else ""
    return (
        f"{_bar(done)} {percent(done)}  step {state.step} of {state.total_steps}, "
        f"epoch {state.epoch} of {state.num_epochs}{left}"
    )


def _figures(state: RunState) -> str:
    told = [
        "" if state.loss is None else f"loss {loss_text(state.loss)}",
        *(f"{name} {or_none(value)}" for name, value in state.metrics.items()),
        "" if state.samples_per_s is None else f"{figure(state.samples_per_s)} samples/s",
        f"checkpoint of step {state.kept_step}" if state.kept_step else "",
    ]
    return "  ".join(each for each in told if each)


def part_shares(parts: TimeParts) -> list[tuple[str, float, float]]:
    """Return (name, seconds, share) of each part of a step."""
    seconds = {name: max(0.0, getattr(parts, field)) for name, field in PARTS.items()}
    step_s = sum(seconds.values())
    return [(name, part_s, part_s / step_s if step_s > 0 else 0.0) for name, part_s in seconds.items()]


def _parts_text(parts: TimeParts) -> str:
    width = max(map(len, PARTS))
    return "\n".join(f"{name:<{width}} {percent(share):>5} {_bar(share)}" for name, _, share in part_shares(parts))


def _events_text(state: RunState) -> str:
    return "\n".join(f"{time_of_day(event.at)}  {event.text}" for event in state.events[-_MOST_EVENTS:])


def _ledger_text(ledger: Sequence[MemberEvent]) -> str:
    shown = [
        f"{time_of_day(event.at)}  {event.name}: {event.costs}" for event in ledger[-_MOST_CHANGES:] if event.costs
    ]
    return "\n".join(["What hosts that came and went have cost:", *shown]) if shown else ""


def _ranks_text(ranks: Sequence[RankState], most: int | None, look: Look) -> str:
    if not ranks:
        return ""
    shown = ranks[:most]
    table = render(
        list(RANK_COLUMNS), [[cell(rank) for cell in RANK_COLUMNS.values()] for rank in shown], look, numeric=True
    )
    more = len(ranks) - len(shown)
    return f"{table}{count(more, 'more rank')}: --json has all\n" if more else table


def _cores(rank: RankState) -> float | None:
    if rank.compute_cores is None or rank.communication_cores is None:
        return None
    return rank.compute_cores + rank.communication_cores


def _links_text(links: Sequence[LinkState], look: Look) -> str:
    if not links:
        return ""
    rows = [
        [link.node, link_rate(link.uplink_bytes_per_s), link_rate(link.downlink_bytes_per_s), link.origin]
        for link in links
    ]
    return render(["node", "uplink", "downlink", "known by"], rows, look, numeric=True)


def _bar(share: float) -> str:
    filled = round(_BAR_COLUMNS * min(1.0, max(0.0, share)))
    return f"[{'#' * filled}{'-' * (_BAR_COLUMNS - filled)}]"
