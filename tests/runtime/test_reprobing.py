"""Probing again in the middle of a run, event by event."""

from dataclasses import replace

import pytest
from pretended import cluster

from nfold.core import codec
from nfold.core.cluster import Channel, Cluster
from nfold.core.trace import ReductionParts
from nfold.runtime import events as ev
from nfold.runtime.reprobing import Reprobing
from nfold.runtime.slowness import NUM_STEPS
from nfold.transport.probe import ProbedPair

LINK = Channel(latency_s=0.001, bandwidth_bytes_per_s=10e6, origin="measured")
THREE = Cluster(
    nodes=tuple(replace(cluster().nodes[0], name=name, uplink=LINK, downlink=LINK) for name in ("n0", "n1", "n2"))
)

B0 = "the reduction of b0"


def step(number: int, seconds: float) -> ev.StepDone:
    part = ReductionParts(step=number, rank=0, reduction="b0", queue_s=0.0, duration_s=seconds, sent_bytes=1)
    return ev.StepDone(number, 0, 0.5, (), None, (part,))


def begin(reprobing: Reprobing, seconds: float = 0.3) -> list[ev.Command]:
    commands: list[ev.Command] = []
    for number in range(NUM_STEPS):
        assert commands == []
        commands = reprobing.look(step(number, seconds))
    return commands


def reply(reprobing: Reprobing, order: ev.Order, there: float, back: float) -> list[ev.Command]:
    found = ProbedPair(
        latency_s=0.002, there_bytes_per_s=there, back_bytes_per_s=back, cpu_s_per_byte=0.0, cpu_s_per_message=0.0
    )
    said = codec.encode(found) if order.message["measures"] else None
    return reprobing.take(ev.Received(order.ranks[0], {"is": "probed", "found": said}), 77)


def test_a_slow_reduction_has_every_pair_of_nodes_probed() -> None:
    reprobing = Reprobing(("n0", "n1", "n2"), THREE, {B0: 0.1})
    assert not reprobing.is_open
    orders = begin(reprobing)
    assert reprobing.is_open
    pairs = [(order.ranks[0], order.message["peer"]) for order in orders if order.message["measures"]]
    assert {frozenset(pair) for pair in pairs} == {frozenset(pair) for pair in ((0, 1), (0, 2), (1, 2))}
    assert sorted(
        (order.message["peer"], order.ranks[0]) for order in orders if not order.message["measures"]
    ) == sorted(pairs)


def test_what_changed_is_told_and_nothing_is_probed_twice() -> None:
    reprobing = Reprobing(("n0", "n1", "n2"), THREE, {B0: 0.1})
    told: list[ev.Command] = []
    for order in begin(reprobing):
        assert told == []
        speed = {0: 10e6, 1: 10e6, 2: 2.5e6}
        told = reply(reprobing, order, speed[order.ranks[0]], speed[order.message["peer"]])
    assert not reprobing.is_open
    noted, changed, traces = told
    assert isinstance(noted, ev.Noted)
    assert noted.text == (
        "the reduction of b0 takes 300.0 ms instead of 100.0 ms; probed again: n2's uplink moves 2.5 MB/s instead of 10"
    )
    assert isinstance(changed, ev.LinksChanged)
    assert changed.next_step == 77
    links = [(node.uplink.bandwidth_bytes_per_s, node.downlink.bandwidth_bytes_per_s) for node in changed.cluster.nodes]
    assert links == [(10e6, 10e6), (10e6, 10e6), (2.5e6, 10e6)]
    order = {"do": "trace", "unsent_bytes": [100_000, 100_000, 25_000]}
    assert traces == ev.Order((0, 1, 2), order), "what is judged from here on needs steps task by task"
    assert all(reprobing.look(step(number, 0.3)) == [] for number in range(3 * NUM_STEPS))


def test_links_as_they_were_are_called_so() -> None:
    reprobing = Reprobing(("n0", "n1", "n2"), THREE, {B0: 0.1})
    told = [command for order in begin(reprobing) for command in reply(reprobing, order, 9.5e6, 10e6)]
    (noted,) = told
    assert noted.text.endswith("the links are as they were")


@pytest.mark.parametrize("kind", ["steps", "checkpoint"])
def test_other_messages_are_left_alone(kind: str) -> None:
    reprobing = Reprobing(("n0", "n1", "n2"), THREE, {B0: 0.1})
    begin(reprobing)
    assert reprobing.take(ev.Received(0, {"is": kind}), 77) == []
    assert reprobing.is_open


def test_one_rank_has_nothing_to_probe() -> None:
    reprobing = Reprobing(("n0",), THREE, {B0: 0.1})
    assert begin(reprobing) == []
    assert not reprobing.is_open
