"""What the thread that serves a shard does beside playing requests."""

import threading
import time
from types import SimpleNamespace

from nfold.planning.asynchronous.snapshot_steps import SnapshotSteps
from nfold.planning.asynchronous.staleness import Asked, Pushed, Shard
from nfold.runtime.asynchronous.server import Server
from nfold.runtime.asynchronous.ticket_spans import TicketSpans
from nfold.runtime.asynchronous.tickets import Tickets
from nfold.runtime.control.ticket_rows import Account
from nfold.runtime.snapshots.shipments import Giving


class End:
    """A worker that the test plays."""

    gradients = rows = ()

    def listen(self, post):
        self.post = post

    def answer(self, answer, store):
        return 0


def test_buddies_are_hurried_once_a_gradient_waits_for_them_and_not_before():
    end, sent, hurried, failures = End(), threading.Event(), threading.Event(), []
    tickets = Tickets((0,), 1, lambda step: (1,))
    store = SimpleNamespace(norms=None, advance=lambda steps: None, apply=lambda *what: None)

    def snapshot(step, held_s, given):
        sent.set()
        return Giving(1, hurried.set)

    server = Server(
        Shard(1, bound=None, staleness_aware=False),
        store,
        {0: end},
        Account(0, 0),
        TicketSpans(0, range(0), tickets, time.perf_counter),
        tickets,
        SnapshotSteps(2, 0, 9),
        is_dedicated=False,
        snapshot=snapshot,
        tell=lambda steps, elapsed_s: None,
        idle=lambda: None,
        fail=failures.append,
        clock=time.perf_counter,
    )
    server.allow(9)
    for ticket in range(3):
        end.post(Asked(worker=0, clock=ticket, steps=9))
        end.post(Pushed(worker=0, ticket=ticket, version=ticket, weight=1.0))
    server.wait_until(3)
    assert sent.is_set()
    assert not hurried.is_set(), "they may have it a step later"
    end.post(Asked(worker=0, clock=3, steps=9))
    end.post(Pushed(worker=0, ticket=3, version=3, weight=1.0))
    assert hurried.wait(10)
    server.close()
    assert not failures
