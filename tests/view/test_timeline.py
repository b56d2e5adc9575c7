"""Bars on one clock, messages as arrows, and the file that trace viewers open."""

import json
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import pytest

from nfold.core.trace import Span, StepTrace
from nfold.view.chrome_trace import chrome_trace
from nfold.view.timeline import timeline

NODES = ("n0", "n1")


def span(rank, kind, name, start_s, end_s, **fields):
    return Span(rank=rank, kind=kind, name=name, start_s=start_s, end_s=end_s, **fields)


def ring_step(**fields):
    """Two ranks sum one bucket: rank 1 computes longer, so rank 0 waits."""
    spans = (
        span(0, "F", "F0.0", 0.0, 0.2, chunk=0),
        span(0, "SEND", "reduce b0 to 1", 0.2, 0.3, peer=1, payload_bytes=80),
        span(0, "RECV", "reduce b0 from 1", 0.0, 0.6, peer=1),
        span(0, "UPDATE", "UPDATE b0", 0.6, 0.7),
        span(1, "F", "F0.1", 0.0, 0.5, chunk=1),
        span(1, "SEND", "reduce b0 to 0", 0.5, 0.55, peer=0, payload_bytes=80),
        span(1, "RECV", "reduce b0 from 0", 0.0, 0.35, peer=0),
        span(1, "UPDATE", "UPDATE b0", 0.5, 0.6),
    )
    return StepTrace(
        **{"step": 3, "origin": "measured", "step_s": (0.7, 0.6), "spans": spans, "begin_s": (10.0, 10.0), **fields}
    )


def of(bars, rank, activity):
    return [
        (round(bar.start_s, 6), round(bar.end_s, 6)) for bar in bars if (bar.rank, bar.activity) == (rank, activity)
    ]


def test_bars_are_seconds_since_the_first_of_them():
    drawn = timeline([ring_step()], NODES)

    assert of(drawn.bars, 0, "forward") == [(0.0, 0.2)]
    assert of(drawn.bars, 1, "update") == [(0.5, 0.6)]
    assert drawn.end_s == pytest.approx(0.7)


def test_a_gap_before_the_last_message_is_a_wait_and_others_are_not():
    bars = timeline([ring_step()], NODES).bars

    assert of(bars, 0, "wait") == [(0.2, 0.6)]
    assert of(bars, 1, "wait") == []


def test_a_receive_begins_with_its_send():
    bars = timeline([ring_step()], NODES).bars

    assert of(bars, 0, "receive") == [(0.5, 0.6)]
    assert of(bars, 1, "receive") == [(0.2, 0.35)]


def test_every_message_is_one_flow_from_its_send_to_its_receive():
    drawn = timeline([ring_step(), ring_step(step=4, begin_s=(11.0, 11.0))], NODES)

    ends = [(drawn.bars[flow.send], drawn.bars[flow.receive]) for flow in drawn.flows]
    assert len(ends) == 4
    for send, receive in ends:
        assert (send.lane, receive.lane) == ("send", "receive")
        assert (send.step, send.rank, send.peer) == (receive.step, receive.peer, receive.rank)


def test_equal_messages_pair_in_order():
    pieces = tuple(
        span(rank, kind, name, start_s, start_s + 0.05, peer=1 - rank)
        for start_s in (0.1, 0.2, 0.3)
        for rank, kind, name in ((0, "SEND", "push b0 to 1"), (1, "RECV", "push b0 from 0"))
    )
    drawn = timeline([ring_step(spans=pieces)], NODES)

    assert [drawn.bars[f.send].start_s == drawn.bars[f.receive].start_s for f in drawn.flows] == [True] * 3


@pytest.mark.parametrize("shift_s", [-1000.0, 0.0, 1000.0])
def test_clocks_of_nodes_are_moved_together_where_they_must_be(shift_s):
    """Messages of 0.1 s and 0.15 s leave the clocks 0.125 s of freedom to either side."""
    bars = timeline([ring_step(begin_s=(10.0, 10.0 + shift_s))], NODES).bars

    error_s = of(bars, 1, "update")[0][0] - of(bars, 0, "update")[0][0] - (0.5 - 0.6)
    assert error_s == pytest.approx(0.0, abs=0.13 if shift_s else 1e-9)


def test_a_node_from_which_nothing_comes_back_is_moved_by_as_little_as_possible():
    one_way = tuple(s for s in ring_step().spans if not (s.kind == "SEND" and s.rank == 1))
    spans = tuple(s for s in one_way if not (s.kind == "RECV" and s.rank == 0))
    bars = timeline([ring_step(spans=spans, begin_s=(10.0, 0.0))], NODES).bars

    assert of(bars, 1, "receive")[0][1] == of(bars, 0, "send")[0][0]


def test_nothing_traced_is_an_empty_timeline():
    drawn = timeline([], NODES)

    assert (drawn.bars, drawn.flows, drawn.end_s) == ((), (), 0.0)
    assert json.loads(chrome_trace(drawn, NODES, run="r"))["traceEvents"] == []


# The file


@pytest.fixture
def events():
    steps = [ring_step(), ring_step(step=4, begin_s=(11.0, 11.0))]
    return json.loads(chrome_trace(timeline(steps, NODES), NODES, run="runs/a"))["traceEvents"]


def test_every_bar_is_a_slice_in_microseconds(events):
    slices = [event for event in events if event["ph"] == "X"]

    forward = next(event for event in slices if event["name"] == "F0.1")
    assert forward == {
        "ph": "X", "pid": 1, "tid": 0, "name": "F0.1", "cat": "forward", "ts": 0.0, "dur": 500000.0, "args": {"step": 3}
    }  # fmt: skip
    assert len(slices) == 2 * (8 + 1)


def test_slices_of_a_thread_do_not_overlap():
    """Three pieces travel at once: three threads."""
    pieces = tuple(span(0, "SEND", "push b0 to 1", start_s, start_s + 0.5, peer=1) for start_s in (0.1, 0.2, 0.3, 0.65))
    drawn = timeline([ring_step(spans=pieces)], NODES)
    slices = [event for event in json.loads(chrome_trace(drawn, NODES, run="r"))["traceEvents"] if event["ph"] == "X"]

    by_thread = defaultdict(list)
    for event in slices:
        by_thread[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert len(by_thread) == 3
    for intervals in by_thread.values():
        intervals.sort()
        assert all(before[1] <= after[0] for before, after in pairwise(intervals))


def test_every_arrow_has_two_ends_within_slices_of_its_thread(events):
    ends = defaultdict(dict)
    for event in events:
        if event["ph"] in "sf":
            ends[event["id"]][event["ph"]] = event
    assert len(ends) == 4
    for pair in ends.values():
        assert pair["s"]["ts"] <= pair["f"]["ts"]
        for end in pair.values():
            assert any(_encloses(event, end) for event in events if event["ph"] == "X"), end


def test_processes_are_ranks_and_threads_are_lanes(events):
    names = {
        (event["pid"], event["tid"], event["name"]): event["args"]["name"]
        for event in events
        if event["ph"] == "M" and "name" in event["args"]
    }
    assert names[0, 0, "process_name"] == "rank 0 on n0"
    assert names[1, 0, "thread_name"] == "compute"
    assert {label for (_, _, kind), label in names.items() if kind == "thread_name"} == {
        "compute",
        "network, send",
        "network, receive",
    }


def test_hostile_names_stay_text():
    step = ring_step()
    hostile = replace(step.spans[0], name='"}],"x":[{"</script>')
    drawn = timeline([replace(step, spans=(hostile, *step.spans[1:]))], ('n"0\n', "n1"))

    document = json.loads(chrome_trace(drawn, ('n"0\n', "n1"), run="</script>"))

    assert document.keys() == {"displayTimeUnit", "otherData", "traceEvents"}
    assert any(event["name"] == hostile.name for event in document["traceEvents"])


def _encloses(slice_, end):
    same = (slice_["pid"], slice_["tid"]) == (end["pid"], end["tid"])
    return same and slice_["ts"] <= end["ts"] <= slice_["ts"] + slice_["dur"]
