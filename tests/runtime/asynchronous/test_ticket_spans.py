"""What an asynchronous rank notes of its messages, its updates and its waiting."""

from collections import Counter
from functools import cache

import pytest
from drifting import drift, drifting_plan
from harness import graph_of
from nets import program

from nfold.core.trace import Span
from nfold.planning.asynchronous.asynchronous_strategies import serving_ranks
from nfold.runtime.asynchronous.ticket_spans import TicketSpans
from nfold.runtime.asynchronous.tickets import Tickets
from nfold.runtime.control.ticket_rows import Account

STEPS = 6
TRACED = range(1, 4)


@pytest.fixture(scope="module")
def graph():
    return cache(lambda: graph_of(program("plain")))()


@pytest.fixture
def ticket_spans():
    return TicketSpans(1, range(2, 4), Tickets((0, 1), 2, lambda step: (4, 4)), lambda: 0.0)


def test_only_the_steps_that_are_traced_are_kept_each_on_its_own(ticket_spans):
    ticket_spans.sent("gradient", 3, 0, 100, 10.0, 11.0)
    ticket_spans.sent("gradient", 4, 0, 100, 12.0, 13.5)
    ticket_spans.received("values", 6, 0, 80, 14.0, 15.0)
    assert (ticket_spans.keeps(3), ticket_spans.keeps(4)) == (False, True)
    assert ticket_spans.take(1, 0.0) == ()
    (pushed,) = ticket_spans.take(2, 11.5)
    assert pushed == Span(rank=1, kind="SEND", name="gradient 4 to 0", start_s=0.5, end_s=2.0, purpose="push", peer=0,
                          payload_bytes=100)  # fmt: skip
    (pulled,) = ticket_spans.take(3, 11.5)
    assert (pulled.kind, pulled.name, pulled.purpose) == ("RECV", "values 6 from 0", "pull")
    assert ticket_spans.take(2, 0.0) == (), "told once"


def test_what_an_engine_did_is_moved_to_the_clock_of_its_rank(ticket_spans):
    ticket_spans.computed(4, [Span(rank=0, kind="F", name="F0.0", start_s=0.25, end_s=0.5)], 8.0)
    assert ticket_spans.take(2, 7.0) == (Span(rank=1, kind="F", name="F0.0", start_s=1.25, end_s=1.5),)


def test_a_worker_that_waits_while_its_own_shard_updates_waits_for_the_update():
    account = Account(0, 0)
    account.updating(1.0)
    account.updated(2.0)  # before it waits: hidden behind its computing
    account.updating(3.5)
    account.updated(4.0)
    account.updating(4.5)  # goes on beyond the wait
    account.waited(3.0, 5.0)
    account.updated(6.0)
    account.waited(5.5, 7.0)
    ((parts, _),) = account.close(1, 8.0)
    assert parts.update_s == pytest.approx(0.5 + 0.5 + 0.5)
    assert parts.communication_s == pytest.approx(2.0 + 1.5 - 1.5)


@pytest.mark.parametrize(("workers", "servers", "bound"), [(2, 0, None), (3, 0, 1), (2, 1, None), (3, 2, 1)])
def test_both_ends_note_every_message_of_a_step_and_all_its_bytes(graph, workers, servers, bound):
    mine = program("plain")
    plan = drifting_plan(mine, graph, workers, servers, chunks=6, bound=bound)
    drifted = drift(mine, graph, plan, [STEPS], traced_steps=TRACED)
    told = {result.parts.step: [] for result in drifted.results[0]}
    for results in drifted.results:
        for result in results:
            told[result.parts.step] += result.spans
    assert all(bool(spans) == (step in TRACED) for step, spans in told.items())
    for step in TRACED:
        asked = Counter((span.name.split()[1], span.rank) for span in told[step] if span.name.startswith("ask"))
        assert {int(ticket) // workers for ticket, _ in asked} == {step}
        _check_pairs(told[step])
    # A gradient may still be on its way where its step is told; requests and answers never are.
    pulled = [span for span in told[TRACED[0]] if span.purpose == "pull" and span.kind == "SEND" and span.payload_bytes]
    remote = sum(server != worker for server in serving_ranks(plan.reductions) for worker in range(workers))
    assert len(pulled) <= 2 * workers * len(serving_ranks(plan.reductions))
    assert servers == 0 or len(pulled) == 2 * remote
    assert {span.kind for span in told[TRACED[0]]} >= {"F", "B", "SEND", "RECV", "UPDATE"}


def _check_pairs(spans):
    """What was sent is what came, as far as both were told."""
    ends = {kind: {} for kind in ("SEND", "RECV")}
    for span in spans:
        assert span.end_s >= span.start_s
        if span.kind in ends:
            way = (span.rank, span.peer) if span.kind == "SEND" else (span.peer, span.rank)
            ends[span.kind][span.name.split()[0], span.name.split()[1], way] = span.payload_bytes
    shared = ends["SEND"].keys() & ends["RECV"].keys()
    assert shared
    assert all(ends["SEND"][key] == ends["RECV"][key] for key in shared)
