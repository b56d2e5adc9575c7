"""An Advice as a table and as sentences: where more nodes stop helping, and which number is cheapest and quickest."""

from collections.abc import Iterator
from textwrap import fill

from nfold.core.findings.node_advice import Advice, Bottleneck, Forecast, Size
from nfold.core.text.units import clock, count, figure, percent, seconds
from nfold.view.rendering import NONE, PLAIN, Look, or_none, render

_LONG_S = 60
_NOTHING = 0.005
"""Share of a step that is written as 0 %."""


def advice_text(advice: Advice, *, look: Look = PLAIN) -> str:
    """Return a row for each number of nodes, and what follows from them.

    Args:
        advice: what was found.
        look: where it will be read.
    """
    prices = any(size.forecast is not None and size.forecast.cost is not None for size in advice.sizes)
    head = ["nodes", "best", "step", "run", "samples/s", "speed-up", *(["cost"] if prices else []), "held up by"]
    table = render(head, [_row(size, prices=prices) for size in advice.sizes], look, numeric=False)
    sentences = (fill(sentence, look.width) for sentence in advice_sentences(advice))
    return "\n".join([_title(advice, look), f"{table}{_more(advice, look)}", *sentences])


def _title(advice: Advice, look: Look) -> str:
    return fill(
        f"{count(advice.total_steps, 'step')} with batches of {advice.batch_size}, a worker on each node; measured: "
        f"{', '.join(advice.measured)}. A run is its steps: starting, evaluating and checkpoints come on top.",
        look.width,
    )


def _more(advice: Advice, look: Look) -> str:
    if all(size.num_measured == size.nodes for size in advice.sizes):
        return ""
    return fill("* with more nodes like those that were measured, again in their order", look.width) + "\n"


def _row(size: Size, *, prices: bool) -> list[str]:
    nodes = f"{size.nodes}{'*' if size.num_measured < size.nodes else ''}"
    run = size.forecast
    if run is None:
        return [nodes, *[NONE] * (6 if prices else 5), size.note]
    return [
        nodes,
        run.architecture,
        seconds(run.step_s),
        run_time(run.run_s),
        figure(run.samples_per_s),
        or_none(run.speedup, lambda value: f"{value:.2f}x"),
        *([or_none(run.cost)] if prices else []),
        _held_up(run),
    ]


def run_time(value_s: float) -> str:
    """`4000` -> `1:06:40`; shorter ones in seconds."""
    return clock(value_s) if value_s >= _LONG_S else seconds(value_s)


def _held_up(run: Forecast) -> str:
    return bottleneck_text(run.bottleneck) + (f"; {len(run.idle)} idle" if run.idle else "")


def bottleneck_text(found: Bottleneck) -> str:
    """`n2's uplink, 97 % busy`, `all links, 80 % busy`, `computing`, `waiting for messages, 60 %`."""
    if found.kind == "link":
        return f"{found.node}'s {found.side}, {percent(found.share)} busy"
    if found.kind == "links":
        return f"links, {percent(found.share)} busy"
    if found.kind == "messages":
        return f"waiting for messages, {percent(found.share)}"
    return f"computing on {found.node}" if found.node else "computing"


def advice_sentences(advice: Advice) -> list[str]:
    """Return where to stop, the cheapest and the quickest number, what a time limit needs, and whom to leave out."""
    return list(_sentences(advice))


def _sentences(advice: Advice) -> Iterator[str]:
    if advice.stop_at is None or advice.quickest is None:
        yield f"The program can run on none of these numbers of nodes. {advice.sizes[-1].note}"
        return
    yield _stop(advice, advice.stop_at)
    if idle := _forecast(advice, advice.stop_at).idle:
        them = "it" if len(idle) == 1 else "them"
        yield f"Of the {advice.stop_at}, {_names(idle)} nothing to compute: leave {them} out."
    is_least = _forecast(advice, advice.quickest).run_s <= _least_s(advice)
    yield f"{'Quickest' if is_least else 'About as quick as any'}: {_run(advice, advice.quickest)}."
    if advice.cheapest is not None:
        yield f"Cheapest: {_run(advice, advice.cheapest)}."
    if advice.within_s is not None:
        yield _in_time(advice, advice.within_s)


def _names(idle: tuple[str, ...]) -> str:
    return f"{', '.join(idle)} {'has' if len(idle) == 1 else 'have'}"


def _stop(advice: Advice, stop_at: int) -> str:
    """Say where more nodes stop helping, and why the next number does not."""
    larger = [size for size in advice.sizes if size.nodes > stop_at]
    if not larger:
        return f"More nodes help up to {stop_at}, the most that were asked about."
    following = larger[0]
    if following.forecast is None:
        return f"Stop at {count(stop_at, 'node')}: nothing can run on {following.nodes}. {following.note}"
    saved = 1 - following.forecast.step_s / _forecast(advice, stop_at).step_s
    more = following.nodes
    return f"Stop at {count(stop_at, 'node')}: {more} {_saving(saved)}. With {more}, {_reason(following)}"


def _saving(saved: float) -> str:
    if abs(saved) < _NOTHING:
        return "save nothing"
    return f"save {percent(saved)} of a step" if saved > 0 else f"take {percent(-saved)} longer"


def _reason(size: Size) -> str:
    """Say why a number of nodes is no better."""
    if size.note:
        return f"{size.note.rstrip('.')}."
    assert size.forecast is not None, "there is a reason for a forecast"
    if size.forecast.idle:
        return f"{_names(size.forecast.idle)} nothing to compute, since a step would be no faster with more."
    found = size.forecast.bottleneck
    if found.kind == "link":
        return f"the {found.side} of {found.node} is full: {percent(found.share)} busy in each step."
    if found.kind == "links":
        return f"links are full: {percent(found.share)} busy in each step."
    if found.kind == "messages":
        return f"{percent(found.share)} of a step is waiting for messages."
    where = f", on {found.node}" if found.node else ""
    return f"computing is {percent(found.share)} of a step{where}: smaller parts of a batch take nearly as long."


def _run(advice: Advice, nodes: int) -> str:
    run = _forecast(advice, nodes)
    cost = f", which costs {figure(run.cost)}" if run.cost is not None else ""
    return f"{count(nodes, 'node')} ({run.architecture}), {run_time(run.run_s)}{cost}"


def _in_time(advice: Advice, within_s: float) -> str:
    limit = run_time(within_s)
    if advice.in_time is None:
        least_s = _least_s(advice)
        return (
            f"No number of nodes that was asked about is done within {limit}: the quickest takes {run_time(least_s)}."
        )
    return f"Within {limit}: at least {_run(advice, advice.in_time)}."


def _least_s(advice: Advice) -> float:
    return min(size.forecast.run_s for size in advice.sizes if size.forecast is not None)


def _forecast(advice: Advice, nodes: int) -> Forecast:
    found = advice.size(nodes).forecast
    assert found is not None, "it was chosen by its forecast"
    return found
