"""Samples leave while no gradients travel, and whatever waits for them still gets them."""

import threading

import torch
from moving_nodes import nodes_with

from nfold.core.residency import SampleMove
from nfold.runtime.samples.gradients_first import Gate, GatedTransport
from nfold.runtime.samples.pacing import Pacer
from nfold.transport.implementations.in_memory import MemoryNetwork

WAIT_S = 10.0
QUIET_S, SETTLE_S = 0.5, 0.125


class Clock:
    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


class Held:
    """A transport whose messages end when a test says so."""

    rank, world_size, sent_bytes, received_bytes = 0, 2, 0, 0

    def __init__(self):
        self.sends, self.receives = [], []

    def send(self, peer, tag, data, done):
        self.sends.append(done)

    def receive(self, peer, tag, into, done):
        self.receives.append(done)


def gated():
    clock, held = Clock(), Held()
    gate = Gate(QUIET_S, SETTLE_S, clock)
    return clock, held, gate, GatedTransport(held, gate)


def ask(transport):
    transport.receive(1, 0, memoryview(bytearray(1)), lambda: None)


def give(transport, done=lambda: None):
    transport.send(1, 0, memoryview(b"1"), done)


def test_a_rank_that_computes_sends_samples_also_while_others_send_to_it():
    _, held, gate, transport = gated()
    assert gate.waits_s() == 0.0
    for _ in range(2):
        ask(transport)
    assert gate.waits_s() == 0.0, "a step has begun"
    held.receives[0]()
    assert gate.waits_s() == 0.0, "another rank has computed sooner"


def test_samples_wait_from_the_first_gradient_until_all_are_there_and_the_kernel_is_empty():
    clock, held, gate, transport = gated()
    ask(transport)
    give(transport)
    clock.now_s = 2 * QUIET_S
    assert gate.waits_s() > 0.0, "it is still on its way"
    held.sends[0]()
    assert gate.waits_s() == QUIET_S, "another one comes"
    held.receives[0]()
    assert gate.waits_s() == SETTLE_S
    clock.now_s += SETTLE_S
    assert gate.waits_s() == 0.0
    ask(transport)
    assert gate.waits_s() == 0.0, "the next step computes"


def test_an_exchange_goes_on_as_long_as_something_comes_or_goes():
    clock, held, gate, transport = gated()
    for _ in range(3):
        ask(transport)
    give(transport)
    held.sends[0]()
    for came in held.receives[:2]:
        clock.now_s += 0.25
        came()
        assert gate.waits_s() == QUIET_S


def test_an_exchange_that_stands_still_lets_samples_pass_until_it_goes_on():
    """A peer may wait for these very samples: if they waited for its gradients, nobody would ever go on."""
    clock, held, gate, transport = gated()
    for _ in range(2):
        ask(transport)
    give(transport)
    held.sends[0]()
    clock.now_s = QUIET_S
    assert gate.waits_s() == 0.0
    held.receives[0]()
    assert gate.waits_s() == QUIET_S


def test_a_message_that_another_one_follows_at_once_does_not_open_it():
    _, held, gate, transport = gated()
    give(transport, done=lambda: give(transport))
    held.sends[0]()
    assert gate.waits_s() == QUIET_S


def test_a_step_takes_at_most_what_was_handed_over_longer_and_uses_all_the_time_in_which_it_computes():
    """A link of 1000 bytes a second: 0.5 s of computing, gradients for 1 s, again and again; threads wake 4 ms late."""
    clock, held, gate, transport = gated()
    gate = Gate(QUIET_S, 0.01, clock)
    transport = GatedTransport(held, gate)
    pacer = Pacer(1000.0, clock, ahead_bytes=5, gate=gate)
    link_free_s, moved = 0.0, 0
    for _ in range(20):
        for _ in range(4):
            ask(transport)
        gradients_s = clock.now_s + 0.5
        while (wakes_s := clock.now_s + (waits_s := pacer.waits_s()) + 0.004) < gradients_s:
            if waits_s:
                clock.now_s = wakes_s
                continue
            pacer.take(5)
            moved += 5
            link_free_s = max(link_free_s, clock.now_s) + 0.005
        clock.now_s = gradients_s
        give(transport)
        assert link_free_s - clock.now_s <= 0.010 + 1e-9
        held.sends.pop()()
        while held.receives:
            assert pacer.waits_s() > 0.0
            clock.now_s += 0.25
            held.receives.pop()()
    assert moved >= 0.9 * 20 * 500


def test_messages_pass_unchanged_and_the_peer_is_told():
    network = MemoryNetwork(2)
    try:
        sides = [GatedTransport(network.transport(rank), Gate(QUIET_S, SETTLE_S)) for rank in range(2)]
        into, came = bytearray(3), threading.Event()
        sides[1].receive(0, 7, memoryview(into), came.set)
        sides[0].send(1, 7, memoryview(b"abc"), lambda: None)
        assert came.wait(WAIT_S)
        assert into == b"abc"
        assert (sides[0].rank, sides[0].world_size, sides[1].received_bytes) == (0, 2, 3)
        told = []
        sides[1].on_failure(told.append)
        network.transport(1).lose(0, "it was killed")
        assert len(told) == 1
    finally:
        network.close()


def test_samples_that_gradients_hold_up_come_when_these_are_through(tmp_path):
    items = [(torch.zeros(3), number) for number in range(50)]
    with nodes_with(tmp_path, items, []) as nodes:
        gate = Gate(quiet_s=3600.0, settle_s=0.0)
        gate.begin_send()
        movers = nodes.movers([SampleMove(source=0, target=1, spans=((0, 50),))], gate=gate)
        assert not nodes.stores[1].numbers()
        gate.end_send()
        assert [mover.wait().num_received for mover in movers] == [0, 50]
