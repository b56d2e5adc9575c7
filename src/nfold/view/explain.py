"""A report as text that says what happened, where, and what to type next."""

from collections.abc import Sequence
from textwrap import fill, indent

from nfold.analysis.measured.gradient_ages import is_old, mean_age, oldest
from nfold.analysis.reporting.own_limit import own_limit
from nfold.core.member_event import MemberEvent
from nfold.core.report import Cause, DataPlaces, RankLoad, ReductionSplit, Report
from nfold.core.text.units import clock, count, figure, link_rate, percent, rate, seconds, signed_percent, size
from nfold.view.rendering import PLAIN, Look, metric_text, time_of_day
from nfold.view.tables import PARTS, run_name

_NEGLIGIBLE = 0.005
"""Causes below this share of the step are not listed."""
_WORTH_SAYING = 1.005
_MORE = 1.02
"""Times what a cause's share alone would win; below it, two figures that are rounded say the same."""
_MOST_BUCKETS = 5
"""The heaviest say what the others do; `--json` has them all."""
_MOST_RANKS = 8
_MOST_BRIEF_CAUSES = 3
MOST_LINES, _BRIEF_WIDTH = 25, 80
"""Of what a run ends with."""


def why_text(report: Report, *, look: Look = PLAIN) -> str:
    """Return the verdict, causes, gains, prediction part by part, the heaviest buckets, what the ranks' machines did,
    where the run's time went, and the next command."""
    sections = [
        fill(report.verdict.text, look.width),
        fill(_summary(report), look.width),
        fill(_learnt(report), look.width),
        _causes_text(report.causes, look.width),
        _gains_text(report, look.width),
        _prediction_text(report),
        _reductions_text(report.reductions),
        fill(_staleness(report), look.width),
        _loads_text(report.loads),
        fill(places_text(report.places), look.width),
        _events_text(report.events),
        _ledger_text(report.ledger),
        f"Next: {report.next_command}" if report.next_command else "",
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def brief_text(report: Report, ending: Sequence[str]) -> str:
    """Return what a run ends with: the verdict, what was learnt, the heaviest causes, what next.

    At most 25 lines where there are 80 columns or more, which is what logs and mails have.

    Args:
        report: of the run; `why_text` says all of it.
        ending: lines that come last, whole.
    """
    width = _BRIEF_WIDTH
    head = [fill(text, width) for text in (report.verdict.text, _summary(report), _learnt(report)) if text]
    if report.next_command:
        ending = [f"Next: {report.next_command}", *ending]
    causes = [cause for cause in report.causes if cause.share >= _NEGLIGIBLE]
    for shown in range(min(_MOST_BRIEF_CAUSES, len(causes)), -1, -1):
        sections = [*head, _causes_text(tuple(causes[:shown]), width), "\n".join(ending)]
        text = "\n\n".join(section for section in sections if section) + "\n"
        if sum(max(1, -(-len(line) // width)) for line in text.splitlines()) <= MOST_LINES:
            return text
    return "\n".join([*head, *ending]) + "\n"


def _summary(report: Report) -> str:
    predicted = report.predicted
    pieces = [
        f"{run_name(report)}: median step {seconds(report.step_s.p50)} over {count(report.num_steps, 'step')}",
        f"{report.samples_per_s:.0f} samples/s",
        "too few steps to say how efficient" if report.is_short else f"{percent(report.efficiency)} efficient",
        f"{size(report.sent_bytes_per_step)} sent a step",
    ]
    if report.bus_bandwidth_bytes_per_s is not None:
        pieces.append(f"bus bandwidth {rate(report.bus_bandwidth_bytes_per_s)}")
    error = f"predicted {seconds(predicted.step_s)} ({signed_percent(predicted.step_error)} of the median)"
    return f"{', '.join(pieces)}; {error}."


def _learnt(report: Report) -> str:
    """Say what training came to."""
    metrics = [f"{name} {metric_text(report.metrics, name)}" for name in report.metrics]
    loss = [] if report.final_loss is None else [f"final loss {figure(report.final_loss)}"]
    return f"Learnt: {', '.join([*loss, *metrics])}." if loss or metrics else ""


def _staleness(report: Report) -> str:
    """Say how old gradients were when they were applied: what a short step of an asynchronous run was paid with."""
    ages = report.ages
    total = sum(ages.values())
    if not total:
        return ""
    shares = ", ".join(f"{age}: {percent(number / total)}" for age, number in sorted(ages.items()))
    return (
        f"Gradients were {mean_age(ages):.1f} updates old on average, {oldest(ages)} at most, where {report.workers} "
        f"updates make a step. {shares}. Judge an asynchronous run by the time to a loss, not by its step time."
    )


def _causes_text(causes: tuple[Cause, ...], width: int) -> str:
    shown = [cause for cause in causes if cause.share >= _NEGLIGIBLE]
    if not shown:
        return ""
    return "\n".join(["What a mean step goes to:", *(_cause_text(cause, width) for cause in shown)])


def _cause_text(cause: Cause, width: int) -> str:
    speedup = cause.what_if_speedup or 1.0
    gain = f"; without {what_goes(cause)} a step would be {speedup:.2f}x as fast" if speedup > _WORTH_SAYING else ""
    head = f"  {seconds(cause.lost_s):>8} {percent(cause.share):>5}  {cause.kind:<12}  "
    return fill(f"{cause.evidence}{gain}", width, initial_indent=head, subsequent_indent=" " * len(head))


def what_goes(cause: Cause) -> str:
    """Say what would be gone with a cause: where that wins more than it takes itself, others wait because of it."""
    alone = 1 / (1 - cause.share) if cause.share < 1 else float("inf")
    return "it and what waits for it" if (cause.what_if_speedup or 1.0) > _MORE * alone else "it"


def _gains_text(report: Report, width: int) -> str:
    verdict = report.verdict
    if not verdict.gains:
        return ""
    lines = [
        fill(
            gain.change,
            width,
            initial_indent=f" {'~' if gain.is_rough else ' '}{gain.speedup:>5.2f}x  ",
            subsequent_indent=" " * 10,
        )
        for gain in verdict.gains
    ]
    if verdict.useful_workers:
        limit = own_limit(verdict.gains, verdict.useful_workers, report.strategy)
        lines.append(f"  {limit[0].upper()}{limit[1:]} would gain less than 2 %.")
    unit = ", in steps a second" if is_old(report.ages) else ""
    return "\n".join([f"What would win{unit} (simulated from this run's measurements):", *lines])


def _prediction_text(report: Report) -> str:
    """The parts of the step as predicted and as measured: where a wrong prediction is wrong."""
    predicted = report.predicted.time
    if predicted is None:
        return ""
    lines = [
        f"  {name:<22}  {seconds(promised):>9}  {seconds(measured):>9}"
        for name, field in PARTS.items()
        if (promised := getattr(predicted, field)) + (measured := getattr(report.time, field)) > 0
    ]
    head = f"  {'mean step, mean rank':<22}  predicted   measured"
    return "\n".join(["Prediction part by part:", head, *lines])


def _reductions_text(reductions: tuple[ReductionSplit, ...]) -> str:
    """What summing the heaviest buckets took, whether computing hid it or not."""
    if not reductions:
        return ""
    shown = reductions[:_MOST_BUCKETS]
    columns = max(8, *(len(split.reduction) for split in shown))
    lines = [
        f"  {split.reduction:<{columns}}  {seconds(split.queue_s):>9}  {seconds(split.transfer_s):>9}  "
        f"{seconds(split.peer_wait_s):>9}  {size(split.sent_bytes):>9}"
        for split in shown
    ]
    head = f"  {'bucket':<{columns}}      queue   transfer  peer wait       sent"
    more = f" (the heaviest {len(shown)} of {len(reductions)})" if len(reductions) > len(shown) else ""
    return "\n".join([f"Gradients summed, mean step, mean rank, hidden or not{more}:", head, *lines])


def _loads_text(loads: tuple[RankLoad, ...]) -> str:
    """What processors, memory, disk and network of each rank did while it trained."""
    if not loads:
        return ""
    shown = loads[:_MOST_RANKS]
    names = [f"{load.rank} on {load.node}" for load in shown]
    columns = max(len("rank"), *map(len, names))
    heads = ("compute  messages   held", "others  stolen     memory       disk        sent    received")
    head = f"  {'rank':<{columns}}  {'  '.join(heads)}"
    lines = [
        f"  {name:<{columns}}  {load.compute_cores:>7.2f}  {load.communication_cores:>8.2f}  "
        f"{percent(load.throttled_share):>5}  {load.neighbour_cores:>6.2f}  {load.steal_cores:>6.2f}  "
        f"{size(load.peak_rss_bytes):>9}  {rate(load.disk_bytes_per_s):>9}  {link_rate(load.sent_bytes_per_s):>10}  "
        f"{link_rate(load.received_bytes_per_s):>10}"
        for name, load in zip(names, shown, strict=True)
    ]
    more = f" (the first {len(shown)} of {len(loads)})" if len(loads) > len(shown) else ""
    return "\n".join([f"Cores of each rank, and what its node did meanwhile{more}:", head, *lines])


def _events_text(events: Sequence[MemberEvent]) -> str:
    """List what changed who trains, and what that cost."""
    if not events:
        return ""
    rows = [
        line
        for event in events
        for line in (
            f"  {time_of_day(event.at)}  {event.told}",
            *([f"            {event.costs}"] if event.costs else []),
        )
    ]
    return "\n".join(["Hosts that came and went:", *rows])


def places_text(places: DataPlaces | None) -> str:
    """Say where data live and what moved; nothing where every rank reads all of them."""
    if places is None:
        return ""
    trains = [f"{each.node} {each.holds} (held {each.held})" for each in places.nodes if each.holds]
    gone = [each.node for each in places.nodes if each.held and not each.holds]
    sent = f" {_few(gone)} sent all data and no gradients." if gone else ""
    before = f" {size(places.before_bytes)} moved before training, in {seconds(places.before_s)}"
    before += f" (predicted: {seconds(places.predicted_s)})." if places.predicted_s is not None else "."
    beside = f" {size(places.beside_bytes)} moved while training."
    moved = (before if places.before_bytes else "") + (beside if places.beside_bytes else "")
    return f"Samples by node (--place {places.method}): {_few(trains)}.{sent}{moved or ' Nothing moved.'}"


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_RANKS} more" if len(names) > _MOST_RANKS else ""
    return f"{', '.join(names[:_MOST_RANKS])}{more}"


def _ledger_text(ledger: dict[str, float]) -> str:
    if not ledger:
        return ""
    total_s = sum(ledger.values())
    ranked = [(name, value) for name, value in sorted(ledger.items(), key=lambda item: -item[1]) if value > 0]
    name_columns = max(len(name) for name in ledger)
    lines = [
        f"{name:<{name_columns}}  {seconds(value):>8} {percent(value / total_s if total_s else 0.0):>5}"
        for name, value in ranked
    ]
    return f"The whole run took {clock(total_s)}:\n" + indent("\n".join(lines), "  ")
