"""Reports and plans as tables: runs side by side, and what the planner chose and why the others lost."""

from collections.abc import Callable, Sequence

from nfold.core.findings.comparison import Architecture
from nfold.core.plan import Plan, Prediction, Rejected, Unpredicted
from nfold.core.report import Report
from nfold.core.text.units import count, figure, percent, rate, seconds, signed_percent, size
from nfold.view.grid import grid_picture
from nfold.view.rendering import NONE, PLAIN, Look, metric_text, or_none, render

PARTS = {
    "compute": "compute_s",
    "exposed communication": "exposed_communication_s",
    "waiting for a peer": "peer_wait_s",
    "input": "input_s",
    "update": "update_s",
    "other": "other_s",
}
"""Parts of a step by the name that people read, and their field in TimeParts."""
_UNDOMINATED = "* nothing else here is as good in step time, bytes and memory, and better in one of them"
_LABEL_COLUMNS = 27
_RUN_COLUMNS = 15
"""Widths with their padding, for deciding how many runs fit side by side."""


def compare_table(reports: Sequence[Report], *, names: Sequence[str] | None = None, look: Look = PLAIN) -> str:
    """Return runs as columns and figures as rows; more runs than fit go into a block below.

    Args:
        reports: what to compare.
        names: head of each column; by default the strategy and its ranks.
        look: where it will be read.
    """
    heads = list(names) if names is not None else [run_name(report) for report in reports]
    per_block = max(1, (look.width - _LABEL_COLUMNS) // _RUN_COLUMNS)
    blocks = []
    for first in range(0, len(reports), per_block):
        part = slice(first, first + per_block)
        blocks.append(render(["", *heads[part]], _rows(reports[part], reports), look, numeric=True))
    return "\n".join(blocks)


def run_name(report: Report) -> str:
    """Return `ring x4`, `ps x3 +1` (one dedicated server) or `single`."""
    return Architecture(strategy=report.strategy, servers=report.servers).sized(report.workers)


def threads_of(plan: Plan) -> str:
    """Return `1 thread a rank`, or from how many to how many: they decide the last bits of a result."""
    least, most = min(plan.threads), max(plan.threads)
    return f"{count(most, 'thread') if least == most else f'{least} to {most} threads'} a rank"


def plan_table(plan: Plan, *, shows_all: bool = False, look: Look = PLAIN) -> str:
    """Return the grid, and the chosen strategy beside the rejected ones: what each should cost and why it lost.

    Args:
        plan: what was planned.
        shows_all: every proposal, not only the best of each strategy.
        look: where it will be read.
    """
    shown = list(plan.rejected) if shows_all else _best_of_each(plan)
    chosen = [_marked(plan), str(plan.chunks), *_prediction_cells(plan.predicted), "chosen"]
    lost = [
        [_marked(other), str(other.chunks or NONE), *_prediction_cells(other.predicted), other.why] for other in shown
    ]
    head = ["strategy", "chunks", "step", "bytes/step", "memory/rank", "why"]
    servers = f" and {plan.servers} dedicated" if plan.servers else ""
    title = (
        f"{count(plan.workers, 'worker')}{servers} on {', '.join(dict.fromkeys(plan.nodes))}, "
        f"batch {plan.batch_size} in {count(plan.chunks, 'chunk')}, {threads_of(plan)}; predicted:"
    )
    table = render(head, [chosen, *lost], look, numeric=False)
    more = len(plan.rejected) - len(shown)
    hidden = f"\n{count(more, 'more proposal')} of these strategies: --all" if more else ""
    notes = hidden + "".join(f"\nnote: {note}" for note in plan.notes)
    grid = grid_picture(plan.placement, look=look)
    return f"{title}\n{table}{_UNDOMINATED}{notes}\n\n{_balance(plan)}Who computes what (ranks):\n{grid}"


def _best_of_each(plan: Plan) -> list[Rejected]:
    """Return the fastest proposal of each strategy that was not chosen, one without prediction where none has any."""
    best: dict[str, Rejected] = {}
    for other in plan.rejected:
        if other.strategy != plan.strategy and _promised_s(other) < _promised_s(best.get(other.strategy)):
            best[other.strategy] = other
    unpredicted = {other.strategy: other for other in reversed(plan.rejected) if other.strategy not in best}
    chosen = {id(other) for name, other in {**unpredicted, **best}.items() if name != plan.strategy}
    return [other for other in plan.rejected if id(other) in chosen]


def _promised_s(candidate: Rejected | None) -> float:
    predicted = candidate.predicted if candidate is not None else None
    return predicted.step_s if isinstance(predicted, Prediction) else float("inf")


def _balance(plan: Plan) -> str:
    """How evenly the work is divided among those who have some; of asynchronous workers each does as much as it can."""
    loads_s = {rank: plan.loads_s[rank] for rank in plan.placement.working}
    average_s = sum(loads_s.values()) / len(loads_s)
    if plan.asynchrony is not None or len(loads_s) == 1 or not average_s:
        return ""
    heaviest = max(loads_s, key=loads_s.__getitem__)
    times = f"{loads_s[heaviest] / average_s:.2f}x the average"
    return f"The heaviest rank, {heaviest}, computes {seconds(loads_s[heaviest])} a step, {times}.\n"


def _marked(candidate: Plan | Rejected) -> str:
    return f"{candidate.strategy} *" if candidate.is_undominated else candidate.strategy


def _prediction_cells(predicted: Prediction | Unpredicted) -> list[str]:
    if isinstance(predicted, Unpredicted):
        return [NONE, NONE, NONE]
    memory = size(max(predicted.peak_memory_bytes)) if predicted.peak_memory_bytes else NONE
    return [seconds(predicted.step_s), size(predicted.sent_bytes_per_step), memory]


def _rows(shown: Sequence[Report], every: Sequence[Report]) -> list[list[str]]:
    """A figure that no run has (the memory of servers, say) takes no row."""
    metrics = dict.fromkeys(name for report in every for name in report.metrics)
    learnt = [(name, _metric(name)) for name in metrics]  # a metric may be called as a figure is
    figures = [*_FIGURES.items(), *learnt, *_PREDICTIONS.items()]
    kept = [(name, cell) for name, cell in figures if any(cell(report) != NONE for report in every)]
    return [[name, *(cell(report) for report in shown)] for name, cell in kept]


def _metric(name: str) -> Callable[[Report], str]:
    return lambda report: metric_text(report.metrics, name, _four_digits)


def _four_digits(value: float) -> str:
    return f"{value:.4g}"


def _mean_step_s(report: Report) -> float:
    """The sum of its parts."""
    total_s: float = sum(getattr(report.time, field) for field in PARTS.values())
    return total_s


def _share(field: str) -> Callable[[Report], str]:
    def cell(report: Report) -> str:
        part_s, step_s = getattr(report.time, field), _mean_step_s(report)
        return f"{seconds(part_s)} {percent(part_s / step_s if step_s > 0 else 0.0):>5}"

    return cell


def _where(report: Report) -> str:
    """The place, where it says more than the class: a link, a rank."""
    return report.verdict.place if report.verdict.kind in ("link", "peer wait", "server", "latency") else NONE


_FIGURES: dict[str, Callable[[Report], str]] = {
    "step, median": lambda report: seconds(report.step_s.p50),
    "step, 95 %": lambda report: seconds(report.step_s.p95),
    "samples/s": lambda report: figure(report.samples_per_s),
    "efficiency": lambda report: "too few steps" if report.is_short else percent(report.efficiency),
    "step, mean of the ranks": lambda report: seconds(_mean_step_s(report)),
    **{f"  {name}": _share(field) for name, field in PARTS.items()},
    "sent a step, mean rank": lambda report: size(report.sent_bytes_per_step / max(1, report.world_size)),
    "  by the busiest rank": lambda report: or_none(report.busiest_sent_bytes_per_step, size),
    "bus bandwidth": lambda report: or_none(report.bus_bandwidth_bytes_per_s, rate),
    "peak memory, worker": lambda report: size(report.worker_rss_bytes),
    "peak memory, server": lambda report: or_none(report.server_rss_bytes, size),
    "cores busy, whole run": lambda report: f"{report.cpu_cores:.1f}",
    "final loss": lambda report: or_none(report.final_loss, _four_digits),
}

_PREDICTIONS: dict[str, Callable[[Report], str]] = {
    "predicted step": lambda report: seconds(report.predicted.step_s),
    "prediction error": lambda report: signed_percent(report.predicted.step_error),
    "held back by": lambda report: report.verdict.kind,
    "  where": _where,
}
