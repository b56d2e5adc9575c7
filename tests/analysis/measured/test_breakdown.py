"""Parts of a step from synthetic traces."""

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfold.analysis.measured.breakdown import (
    busiest_sent_bytes,
    peer_waits,
    quantile,
    samples_per_s,
    sent_bytes_per_step,
    step_quantiles,
    time_parts,
    worker_steps,
)
from nfold.core.trace import StepParts, Trace
from nfold.errors import InternalError

pytestmark = pytest.mark.long


def parts(step=0, rank=0, compute=0.04, communication=0.01, sent=8, samples=64, **extra):
    zeros = {"input_s": 0.0, "update_s": 0.0, "other_s": 0.0, **extra}
    return StepParts(
        step=step,
        rank=rank,
        step_s=compute + communication + sum(zeros.values()),
        forward_s=compute / 2,
        backward_s=compute / 2,
        communication_s=communication,
        sent_bytes=sent,
        samples=samples,
        **zeros,
    )


def trace_of(*every):
    return Trace(parts=every, steps=(), usage=())


def test_transfer_is_the_least_exposed_communication():
    trace = trace_of(parts(rank=0, communication=0.010), parts(rank=1, communication=0.030))
    found = time_parts(trace, 0)
    assert found.exposed_communication_s == pytest.approx(0.010)
    assert found.peer_wait_s == pytest.approx(0.010)  # 0 and 20 ms


def test_the_straggler_may_change_from_step_to_step():
    trace = trace_of(
        parts(0, 0, communication=0.0), parts(0, 1, communication=0.02),
        parts(1, 0, communication=0.02), parts(1, 1, communication=0.0),
    )  # fmt: skip
    assert time_parts(trace, 0).peer_wait_s == pytest.approx(0.01)


def test_a_rank_that_does_not_communicate_sets_no_floor():
    silent = parts(rank=0, communication=0.0, sent=0)
    assert peer_waits((silent, parts(rank=1, communication=0.02))) == (0.0, 0.0)


@given(st.lists(st.lists(st.tuples(*[st.floats(0, 1)] * 5), min_size=3, max_size=3), min_size=1, max_size=4))
def test_parts_add_up_to_the_mean_step(steps):
    every = [
        parts(step, rank, compute, communication, input_s=load, update_s=update, other_s=other)
        for step, ranks in enumerate(steps)
        for rank, (compute, communication, load, update, other) in enumerate(ranks)
    ]
    found = time_parts(trace_of(*every), 0)
    total = sum(getattr(found, field.name) for field in fields(found))
    assert total == pytest.approx(sum(own.step_s for own in every) / len(every))


def test_warm_up_is_left_out_and_a_short_run_keeps_its_last_step():
    trace = trace_of(*(parts(step, compute=1.0 if step < 2 else 0.1) for step in range(4)))
    assert [step[0].step for step in worker_steps(trace, 2)] == [2, 3]
    assert [step[0].step for step in worker_steps(trace, 99)] == [3]


def test_servers_are_left_out_of_the_means(run):
    trace = run(servers=1, server_s=9.0).trace()
    assert time_parts(trace, 0).other_s == 0.0
    assert time_parts(trace, 0).compute_s == pytest.approx(0.04)


def test_workers_with_nothing_to_do_are_left_out_of_the_means():
    """A plan may leave a slow worker idle; its empty steps take no time."""
    idle = parts(rank=1, compute=0.0, communication=0.0, sent=0, samples=0)
    trace = trace_of(parts(), idle)
    assert worker_steps(trace, 0) == ((parts(),),)
    assert step_quantiles(trace, 0).p50 == pytest.approx(0.05)
    assert samples_per_s(trace, 0) == pytest.approx(64 / 0.05)
    assert worker_steps(trace_of(idle), 0) == ((idle,),)


def test_ends_that_go_back_and_forth_are_no_time():
    """Two workers that end a step in turns, 20 ms before or after each other, take 50 ms a step on each clock."""
    trace = trace_of(parts(rank=0, compute=0.04, communication=0), parts(rank=1, compute=0.06, communication=0))
    assert step_quantiles(trace, 0).p50 == pytest.approx(0.05)
    assert samples_per_s(trace, 0) == pytest.approx(128 / 0.05)


def test_sent_bytes_are_those_of_full_steps():
    trace = trace_of(parts(0, sent=8), parts(1, sent=8), parts(2, sent=6, samples=10))
    assert sent_bytes_per_step(trace, 64) == 8
    assert sent_bytes_per_step(replace(trace, parts=trace.parts[2:]), 64) == 6


def test_the_busiest_rank_may_be_a_server_and_its_shorter_steps_do_not_count():
    full = [part for step in range(2) for part in (parts(step, 0, sent=8), parts(step, 1, sent=24, samples=0))]
    shorter = [
        part for step in range(2, 6) for part in (parts(step, 0, sent=90, samples=10), parts(step, 1, samples=0))
    ]

    assert busiest_sent_bytes(trace_of(*full, *shorter), 64) == 24
    assert busiest_sent_bytes(trace_of(*shorter), 64) == 90


def test_quantiles_are_linear():
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([0.0, 10.0], 0.95) == pytest.approx(9.5)
    assert quantile([7.0], 0.95) == 7.0


def test_an_empty_trace_is_said():
    with pytest.raises(InternalError, match="no step of any worker"):
        time_parts(trace_of(), 0)


def test_in_an_asynchronous_run_nobody_waits_for_a_peer():
    trace = trace_of(parts(rank=0, communication=0.01), parts(rank=1, communication=0.03))
    found = time_parts(replace(trace, is_asynchronous=True), 0)
    assert (found.peer_wait_s, found.exposed_communication_s) == (0.0, pytest.approx(0.02))
