"""Probing again in the middle of a run, event by event."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from pretended import cluster

from nfold.core import codec
from nfold.core.cluster import Channel, Cluster
from nfold.core.trace import ReductionParts
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.measuring.probing_rounds import LEAST_ROUNDS
from nfold.runtime.measuring.reprobing import PATIENCE_S, Reprobing
from nfold.runtime.measuring.slowness import NUM_STEPS
from nfold.transport.probing.probe import ProbedPair

LINK = Channel(latency_s=0.001, bandwidth_bytes_per_s=10e6, origin="measured")
THREE = Cluster(
    nodes=tuple(replace(cluster().nodes[0], name=name, uplink=LINK, downlink=LINK) for name in ("n0", "n1", "n2"))
)

B0 = "the reduction of b0"


def step(number: int, seconds: float) -> cmd.StepDone:
    part = ReductionParts(step=number, rank=0, reduction="b0", queue_s=0.0, duration_s=seconds, sent_bytes=1)
    return cmd.StepDone(number, 0, 0.5, (), None, (part,))


Speeds = Callable[[cmd.Order], tuple[float, float]]


def play(reprobing: Reprobing, speeds: Speeds) -> tuple[list[list[cmd.Order]], list[cmd.Command]]:
    """Answer all probes, and return the orders round by round, and what is said in the end."""
    rounds, told = [], begin(reprobing)
    while reprobing.is_open:
        rounds.append([command for command in told if isinstance(command, cmd.Order)])
        for order in rounds[-1]:
            told = reply(reprobing, order, *speeds(order))
    return rounds, told


def begin(reprobing: Reprobing, seconds: float = 0.3) -> list[cmd.Command]:
    commands: list[cmd.Command] = []
    for number in range(NUM_STEPS):
        assert commands == []
        commands = reprobing.look(step(number, seconds))
    return commands


def reply(reprobing: Reprobing, order: cmd.Order, there: float, back: float) -> list[cmd.Command]:
    found = ProbedPair(
        latency_s=0.002, there_bytes_per_s=there, back_bytes_per_s=back, cpu_s_per_byte=0.0, cpu_s_per_message=0.0
    )
    said = codec.encode(found) if order.message["measures"] else None
    return reprobing.take(ev.Received(order.ranks[0], {"is": "probed", "found": said}), 77)


def test_a_slow_reduction_has_every_pair_of_nodes_probed_round_by_round() -> None:
    reprobing = Reprobing(("n0", "n1", "n2"), THREE, lambda: {B0: 0.1})
    assert not reprobing.is_open
    rounds, _ = play(reprobing, lambda _: (10e6, 10e6))
    assert [len(each) for each in rounds] == [2, 2, 2], "one pair of three nodes at a time"
    orders = [order for each in rounds for order in each]
    assert {order.message["patience_s"] for order in orders} == {PATIENCE_S}
    pairs = [(order.ranks[0], order.message["peer"]) for order in orders if order.message["measures"]]
    assert {frozenset(pair) for pair in pairs} == {frozenset(pair) for pair in ((0, 1), (0, 2), (1, 2))}
    assert sorted(
        (order.message["peer"], order.ranks[0]) for order in orders if not order.message["measures"]
    ) == sorted(pairs)


def test_what_changed_is_told_and_nothing_is_probed_twice() -> None:
    reprobing = Reprobing(("n0", "n1", "n2"), THREE, lambda: {B0: 0.1})
    speed = {0: 10e6, 1: 10e6, 2: 2.5e6}
    _, told = play(reprobing, lambda order: (speed[order.ranks[0]], speed[order.message["peer"]]))
    noted, limits, changed, traces = told
    assert isinstance(noted, cmd.Noted)
    assert noted.text == (
        "the reduction of b0 takes 300.0 ms instead of 100.0 ms; probed again: n2's uplink carries 20 Mbit/s of "
        "payload instead of 80"
    )
    assert isinstance(changed, cmd.LinksChanged)
    assert changed.next_step == 77
    links = [(node.uplink.bandwidth_bytes_per_s, node.downlink.bandwidth_bytes_per_s) for node in changed.cluster.nodes]
    assert links == [(10e6, 10e6), (10e6, 10e6), (2.5e6, 10e6)]
    assert limits == cmd.Order((0, 1, 2), {"do": "limit", "unsent_bytes": [100_000, 100_000, 25_000]})
    assert traces == cmd.Order((0, 1, 2), {"do": "trace"}), "what is judged from here on needs steps task by task"
    assert all(reprobing.look(step(number, 0.3)) == [] for number in range(3 * NUM_STEPS))


def test_links_as_they_were_are_called_so() -> None:
    reprobing = Reprobing(("n0", "n1", "n2"), THREE, lambda: {B0: 0.1})
    _, (noted, limits) = play(reprobing, lambda _: (9.5e6, 10e6))
    assert isinstance(noted, cmd.Noted)
    assert noted.text.endswith("the links are as they were")
    assert limits == cmd.Order((0, 1, 2), {"do": "limit", "unsent_bytes": [95_000, 100_000, 100_000]}), (
        "probes have lifted them"
    )


def test_badly_linked_nodes_are_not_probed_with_everybody_again() -> None:
    nodes = tuple(replace(THREE.nodes[0], name=f"n{index}") for index in range(8))
    reprobing = Reprobing(tuple(node.name for node in nodes), Cluster(nodes=nodes), lambda: {B0: 0.1})
    rounds, _ = play(reprobing, lambda order: (0.1e6, 10e6) if order.ranks[0] == 0 else (10e6, 10e6))
    assert len(rounds) == LEAST_ROUNDS


@pytest.mark.parametrize("kind", ["steps", "checkpoint"])
def test_other_messages_are_left_alone(kind: str) -> None:
    reprobing = Reprobing(("n0", "n1", "n2"), THREE, lambda: {B0: 0.1})
    begin(reprobing)
    assert reprobing.take(ev.Received(0, {"is": kind}), 77) == []
    assert reprobing.is_open


def test_one_rank_has_nothing_to_probe() -> None:
    reprobing = Reprobing(("n0",), THREE, lambda: {B0: 0.1})
    assert begin(reprobing) == []
    assert not reprobing.is_open
