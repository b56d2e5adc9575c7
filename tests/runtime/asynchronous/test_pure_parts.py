"""The pure parts of the asynchronous service: tickets, rows, and what goes over the wire."""

import pytest

from nfold.core.chunks import chunk_sizes
from nfold.errors import TransportError
from nfold.planning.asynchronous.staleness import Answer, Asked, Pulled, Pushed, Refreshed
from nfold.runtime.asynchronous.tickets import Tickets
from nfold.runtime.asynchronous.worker_and_shard_messages import (
    WINDOW,
    NoMoreRequests,
    Tags,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)
from nfold.runtime.control.ticket_rows import Account, aligned


def test_the_tickets_of_a_step_share_its_chunks():
    tickets = Tickets((0, 0, 1, 1), 2, lambda step: chunk_sizes(10 if step == 0 else 3, 4))
    assert [tickets.step(ticket) for ticket in range(4)] == [0, 0, 1, 1]
    assert [tickets.chunks(ticket) for ticket in range(4)] == [(0, 1), (2, 3), (0,), ()]
    assert [tickets.sizes(ticket) for ticket in range(2)] == [(3, 3, 0, 0), (0, 0, 2, 2)]
    assert [tickets.weight(ticket) for ticket in range(4)] == [0.6, 0.4, 1.0, 0.0]


@pytest.mark.parametrize(
    "request_",
    [
        Asked(worker=1, clock=7, steps=9),
        Pulled(worker=1, clock=7, ticket=3),
        Refreshed(worker=1, steps=9),
        Pushed(worker=1, ticket=3, version=12, weight=0.25),
        NoMoreRequests(worker=1),
    ],
)
def test_requests_come_out_as_they_went_in(request_):
    assert decode_request(1, encode_request(request_), {3: 0.25}.__getitem__) == request_


def test_replies_come_out_as_they_went_in():
    answer = Answer(worker=2, ticket=-1, version=5, steps_done=4)
    assert decode_reply(2, encode_reply(answer)) == answer


def test_bytes_that_are_no_request_are_refused():
    with pytest.raises(TransportError, match="worker 1 sent a request of kind 9, which does not exist"):
        decode_request(1, b"\0" * 7 + b"\x09" + b"\0" * 16, float)


def test_no_two_messages_of_a_window_share_a_tag():
    tags = Tags(3)
    used = [
        tag
        for number in range(WINDOW)
        for tag in (
            tags.request(number),
            tags.reply(number),
            *(tags.gradient(number, part) for part in range(3)),
            *(tags.value(number, part) for part in range(3)),
        )
    ]
    assert len(set(used)) == len(used)
    assert tags.request(WINDOW) == tags.request(0)


def test_seconds_are_shared_among_the_steps_that_are_done_and_the_rest_belongs_to_its_own():
    account = Account(4, 2)
    account.spent("forward_s", 1.0)
    account.spent("communication_s", 0.5)
    account.computed(2, 8, {0: 0.25})
    account.computed(4, 8, {1: 0.5})
    account.sent(3, 100)
    account.lasted(3, 0.75)
    (first, losses), (second, none) = account.close(4, 2.0)
    assert (first.step, first.step_s, first.forward_s, first.communication_s) == (2, 1.0, 0.5, 0.25)
    assert (first.other_s, first.samples, first.sent_bytes, losses) == (0.25, 8, 0, {0: 0.25})
    assert (second.step, second.step_s, second.samples, second.sent_bytes, none) == (3, 0.75, 0, 100, {})
    assert account.close(4, 1.0) == []
    ((third, losses),) = account.close(5, 1.0)
    assert (third.forward_s, third.samples, losses) == (0.0, 8, {1: 0.5})


def test_what_comes_before_work_begins_again_belongs_to_no_step():
    account = Account(0, 0)
    account.spent("communication_s", 9.0)
    account.forget()
    assert account.close(1, 1.0)[0][0].communication_s == 0.0


def test_all_ranks_get_the_duration_that_the_timekeeper_saw():
    keeper, other = Account(0, 0), Account(1, 0)
    keeper.spent("forward_s", 1.0)
    other.spent("forward_s", 3.0)
    rows = (keeper.close(1, 2.0)[0][0], other.close(1, 4.0)[0][0])
    kept, scaled = aligned(rows, 0)
    assert kept == rows[0]
    assert (scaled.step_s, scaled.forward_s, scaled.other_s) == (2.0, 1.5, 0.5)
