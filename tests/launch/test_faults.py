"""Faults: how they are written, when they happen, and that nothing happens after the end."""

import queue
import threading
from dataclasses import replace

import pytest

from nfold.core.cluster import Channel, Cluster
from nfold.core.text.cluster_file import parse_cluster
from nfold.errors import ClusterError
from nfold.launch.emulation.faults import FaultClock, moments, parse_fault, perform

CLUSTER = parse_cluster('[[node]]\nname = "n"\ncount = 4\nuplink = "1 Gbit/s"\n', "c.toml")
WAIT_S = 10.0


class Recorder:
    """Nodes that only take note."""

    def __init__(self):
        self.done = queue.SimpleQueue()

    def __getattr__(self, name):
        return lambda *arguments: self.done.put((name, *arguments))


def parse(text):
    return parse_fault(text, CLUSTER)


@pytest.mark.parametrize(
    ("text", "verb", "node", "value", "at_s", "for_s"),
    [
        ("kill n-2@30s", "kill", "n-2", 1.0, 30.0, None),
        ("slow n-1 0.25@10s", "slow", "n-1", 0.25, 10.0, None),
        ("uplink n-3 10Mbit@20s", "uplink", "n-3", 1.25e6, 20.0, None),
        ("downlink n-3 10 Mbit/s @ 500 ms for 2s", "downlink", "n-3", 1.25e6, 0.5, 2.0),
        ("partition n-2@15s for 5s", "partition", "n-2", 1.0, 15.0, 5.0),
        ("partition n-2@1 min", "partition", "n-2", 1.0, 60.0, None),
        ("join n-2@5s", "join", "n-2", 1.0, 5.0, None),
        ("leave n-2@5s", "leave", "n-2", 1.0, 5.0, None),
    ],
)
def test_what_is_understood(text, verb, node, value, at_s, for_s):
    fault = parse(text)
    assert (fault.verb, fault.node, fault.value, fault.at_s, fault.for_s) == (verb, node, value, at_s, for_s)
    assert fault.text == text


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("kill n-9@30s", "no node is called 'n-9'; the cluster has n-0, n-1"),
        ("kil n-1@30s", "must begin with one of kill, slow, uplink, downlink, partition, join, leave"),
        ("", "must begin with one of"),
        ("kill n-1", "the time is missing"),
        ("kill@3s", "the node is missing"),
        ("kill n-1@30", "'30' has no unit"),
        ("kill n-1@soon", "'soon' is no time"),
        ("kill n-1@-3s", "'-3s' is negative"),
        ("kill n-1@3s for 2s", "what was killed does not come back"),
        ("join n-1@3s for 2s", "it stays until another fault"),
        ("leave n-1@3s for 2s", "it stays away until another fault"),
        ("kill n-1 hard@3s", "'hard' says nothing here"),
        ("slow n-1@3s", "a value is missing"),
        ("slow n-1 2@3s", "'2' is no factor"),
        ("slow n-1 0@3s", "'0' is no factor"),
        ("slow n-1 much@3s", "'much' is no factor"),
        ("uplink n-1 10@3s", "'10' has no unit"),
        ("uplink n-1 0Mbit@3s", "is not positive"),
        ("partition n-1@3s for ever", "'ever' is no time"),
    ],
)
def test_what_is_refused(text, fragment):
    with pytest.raises(ClusterError) as caught:
        parse(text)
    assert str(caught.value).startswith(f'--fault "{text}": ')
    assert fragment in str(caught.value)
    assert "Write for example" in str(caught.value)


def test_a_link_that_is_not_declared_cannot_change():
    bare = parse_cluster('[[node]]\nname = "n"\n', "c.toml")
    for verb in ("uplink", "downlink"):
        with pytest.raises(ClusterError, match=f"node 'n' declares no link in the .*, so it has no {verb} that could"):
            parse_fault(f"{verb} n 10Mbit@1s", bare)
    (node,) = bare.nodes
    link = Channel(latency_s=0.0, bandwidth_bytes_per_s=1e6, origin="declared")
    receives = Cluster(nodes=(replace(node, downlink=link),))
    assert parse_fault("downlink n 10Mbit@1s", receives).verb == "downlink"
    with pytest.raises(ClusterError, match="declares only downlink in the cluster file, so it has no uplink"):
        parse_fault("uplink n 10Mbit@1s", receives)
    assert parse_fault("slow n 0.5@1s", bare).verb == "slow", "a share of cores needs no link"


def test_what_begins_and_ends_in_order_of_time():
    faults = [parse("partition n-2@15s for 5s"), parse("kill n-0@18s"), parse("slow n-1 0.5@1s for 30s")]
    assert [(moment.at_s, moment.fault.verb, moment.ends) for moment in moments(faults)] == [
        (1.0, "slow", False),
        (15.0, "partition", False),
        (18.0, "kill", False),
        (20.0, "partition", True),
        (31.0, "slow", True),
    ]


def test_each_fault_is_performed_undone_and_told():
    nodes, told = Recorder(), queue.SimpleQueue()
    texts = ["slow n-1 0.5@0s for 0s", "uplink n-0 8Mbit@1ms for 0s", "partition n-2@2ms for 0s", "kill n-3@3ms"]
    clock = FaultClock([parse(text) for text in texts], nodes, told.put)
    clock.start()
    clock.start()
    assert [nodes.done.get(timeout=WAIT_S) for _ in range(7)] == [
        ("slow", "n-1", 0.5),
        ("slow", "n-1", 1.0),
        ("set_uplink", "n-0", 1e6),
        ("set_uplink", "n-0", None),
        ("part", "n-2"),
        ("join", "n-2"),
        ("kill", "n-3"),
    ]
    assert [told.get(timeout=WAIT_S) for _ in range(2)] == [
        "fault: slow n-1 0.5@0s for 0s: now",
        "fault: slow n-1 0.5@0s for 0s: over",
    ]
    clock.stop()
    assert nodes.done.empty(), "starting twice starts once"


@pytest.mark.parametrize(
    ("texts", "rates"),
    [
        (["uplink n-0 8Mbit@0s", "uplink n-0 16Mbit@2ms for 1ms"], [1e6, 2e6, 1e6]),
        (["uplink n-0 8Mbit@0s for 2ms", "uplink n-0 16Mbit@1ms"], [1e6, 2e6, 2e6]),
        (["uplink n-0 8Mbit@0s for 2ms", "uplink n-0 16Mbit@1ms for 2ms"], [1e6, 2e6, 2e6, None]),
        (["uplink n-0 8Mbit@0s for 1ms", "uplink n-1 16Mbit@0s", "downlink n-0 8Mbit@0s"], [1e6, 2e6, 1e6, None]),
    ],
)
def test_where_a_fault_ends_another_may_still_hold(texts, rates):
    nodes = Recorder()
    for moment in moments([parse(text) for text in texts]):
        perform(moment, nodes)
    assert [nodes.done.get_nowait()[2] for _ in rates] == rates
    assert nodes.done.empty()


def test_a_node_stays_parted_until_no_partition_holds():
    nodes = Recorder()
    for moment in moments([parse("partition n-2@1s for 5s"), parse("partition n-2@3s for 9s")]):
        perform(moment, nodes)
    assert [nodes.done.get_nowait()[0] for _ in range(4)] == ["part", "part", "part", "join"]


def test_a_fault_is_warned_of_before_it_happens_and_not_before_it_is_over():
    order = queue.SimpleQueue()
    nodes = Recorder()
    nodes.done = order
    texts = ["slow n-1 0.5@0s for 0s", "kill n-3@1ms"]
    clock = FaultClock(
        [parse(text) for text in texts], nodes, lambda _: None, warn=lambda fault: not order.put(("warned", fault.text))
    )
    clock.start()
    assert [order.get(timeout=WAIT_S) for _ in range(5)] == [
        ("warned", "slow n-1 0.5@0s for 0s"),
        ("slow", "n-1", 0.5),
        ("slow", "n-1", 1.0),
        ("warned", "kill n-3@1ms"),
        ("kill", "n-3"),
    ]
    clock.stop()


def test_time_counts_from_the_start():
    now, nodes = [100.0], Recorder()
    clock = FaultClock([parse("kill n-1@5s")], nodes, lambda _: None, clock=lambda: now[0])
    now[0] = 200.0
    clock.start()
    clock.stop()
    assert nodes.done.empty()


def test_nothing_happens_after_the_end_and_what_did_not_is_told_once():
    now, nodes, told = [100.0], Recorder(), []
    clock = FaultClock([parse("kill n-1@30s"), parse("slow n-2 0.5@40s for 1s")], nodes, told.append, lambda: now[0])
    clock.start()
    now[0] = 112.34
    clock.stop()
    clock.stop()
    assert nodes.done.empty()
    assert not [thread for thread in threading.enumerate() if thread.name == "nfold-faults"]
    assert told == [
        f"fault: {text}: never happened: it was due after {due} s, and all was over after 12.3 s. Name an earlier "
        "time, or let it run for longer."
        for text, due in (("kill n-1@30s", 30), ("slow n-2 0.5@40s for 1s", 40))
    ]


def test_what_has_begun_or_was_never_to_begin_is_not_told_of():
    nodes, told = Recorder(), queue.SimpleQueue()
    clock = FaultClock([parse("partition n-2@0s for 60s")], nodes, told.put)
    clock.stop()
    assert told.empty(), "the clock never ran: that has a reason which is told of anyway"
    clock.start()
    assert told.get(timeout=WAIT_S) == "fault: partition n-2@0s for 60s: now"
    clock.stop()
    assert told.empty()


def test_a_fault_that_cannot_be_done_is_told_and_the_next_one_still_comes():
    class Broken(Recorder):
        def part(self, node):
            raise ClusterError(f"{node} has no port")

    nodes, told = Broken(), queue.SimpleQueue()
    clock = FaultClock([parse("partition n-2@0s"), parse("kill n-1@1ms")], nodes, told.put)
    clock.start()
    assert told.get(timeout=WAIT_S) == "fault: partition n-2@0s: now, but it failed: n-2 has no port"
    assert nodes.done.get(timeout=WAIT_S) == ("kill", "n-1")
    clock.stop()


def test_only_what_is_done_is_told_of():
    told = queue.SimpleQueue()
    texts = ["leave n-1@0s", "join n-2@1ms"]
    clock = FaultClock([parse(text) for text in texts], Recorder(), told.put, warn=lambda fault: fault.verb == "join")
    clock.start()
    assert told.get(timeout=WAIT_S) == "fault: join n-2@1ms: now"
    clock.stop()
    assert told.empty()
