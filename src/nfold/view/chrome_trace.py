"""Timeline -> the Trace Event Format that chrome://tracing and ui.perfetto.dev open.

A process is a rank, a thread one of its lanes. Slices of one thread must nest, and messages overlap, so a rank has as
many send and receive lanes as it has messages at the same time. Arrows go from each send to its receive.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (Trace Event Format)
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from nfold.view.timeline import Bar, Lane, Timeline

_MICRO = 1e6
_LANE_ORDER: tuple[Lane, ...] = ("compute", "send", "receive")
_LANE_NAMES: dict[Lane, str] = {"compute": "compute", "send": "network, send", "receive": "network, receive"}
_THREADS_PER_LANE = 1000


def chrome_trace(timeline: Timeline, nodes: Sequence[str], *, run: str) -> str:
    """Return the JSON text.

    Args:
        timeline: what to draw.
        nodes: node of each rank.
        run: what the file is about; the viewers show it among their metadata.
    """
    threads = _threads(timeline.bars)
    events = [
        *_metadata(timeline.bars, threads, nodes),
        *(_slice(bar, thread) for bar, thread in zip(timeline.bars, threads, strict=True)),
        *_arrows(timeline, threads),
    ]
    document = {"displayTimeUnit": "ms", "otherData": {"run": run}, "traceEvents": events}
    return json.dumps(document, allow_nan=False, separators=(",", ":"))


def _threads(bars: Sequence[Bar]) -> list[int]:
    """Give every bar a thread on which nothing else runs at that time; bars come in order of their begin."""
    free_at_s: dict[tuple[int, Lane], list[float]] = {}
    threads = []
    for bar in bars:
        ends = free_at_s.setdefault((bar.rank, bar.lane), [])
        place = next((k for k, end_s in enumerate(ends) if end_s <= bar.start_s), len(ends))
        if place == len(ends):
            ends.append(bar.end_s)
        ends[place] = bar.end_s
        threads.append(_LANE_ORDER.index(bar.lane) * _THREADS_PER_LANE + place)
    return threads


def _metadata(bars: Sequence[Bar], threads: Sequence[int], nodes: Sequence[str]) -> Iterator[dict[str, Any]]:
    used = sorted({(bar.rank, thread) for bar, thread in zip(bars, threads, strict=True)})
    for rank in sorted({rank for rank, _ in used}):
        yield _name(rank, 0, "process_name", {"name": f"rank {rank} on {nodes[rank]}"})
        yield _name(rank, 0, "process_sort_index", {"sort_index": rank})
    for rank, thread in used:
        lane, place = divmod(thread, _THREADS_PER_LANE)
        label = _LANE_NAMES[_LANE_ORDER[lane]] + (f" {place + 1}" if place else "")
        yield _name(rank, thread, "thread_name", {"name": label})
        yield _name(rank, thread, "thread_sort_index", {"sort_index": thread})


def _name(rank: int, thread: int, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "pid": rank, "tid": thread, "name": name, "args": arguments}


def _slice(bar: Bar, thread: int) -> dict[str, Any]:
    arguments: dict[str, Any] = {"step": bar.step}
    if bar.payload_bytes:
        arguments["payload_bytes"] = bar.payload_bytes
    return {
        "ph": "X",
        "pid": bar.rank,
        "tid": thread,
        "name": bar.name,
        "cat": bar.activity,
        "ts": round(bar.start_s * _MICRO, 3),
        "dur": round((bar.end_s - bar.start_s) * _MICRO, 3),
        "args": arguments,
    }


def _arrows(timeline: Timeline, threads: Sequence[int]) -> Iterator[dict[str, Any]]:
    """An arrow ends in the middle of its receive: a viewer binds it to the slice that encloses its end."""
    for number, flow in enumerate(timeline.flows, start=1):
        send, receive = timeline.bars[flow.send], timeline.bars[flow.receive]
        common = {"cat": "message", "name": send.name, "id": number}
        begin_us = round(send.start_s * _MICRO, 3)
        middle_us = round((receive.start_s + receive.end_s) / 2 * _MICRO, 3)
        yield {"ph": "s", "pid": send.rank, "tid": threads[flow.send], "ts": begin_us, **common}
        yield {"ph": "f", "bp": "e", "pid": receive.rank, "tid": threads[flow.receive], "ts": middle_us, **common}
