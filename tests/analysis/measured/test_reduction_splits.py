"""Reductions taken apart: what a bucket queued, travelled and waited for peers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from injected import Injected

from nfold.analysis.measured.reduction_splits import reduction_splits
from nfold.core.trace import ReductionParts, Trace


def part(step, rank, name, queue_s, duration_s, sent_bytes=100):
    return ReductionParts(
        step=step, rank=rank, reduction=name, queue_s=queue_s, duration_s=duration_s, sent_bytes=sent_bytes
    )


def trace(*parts, **given):
    return Trace(parts=(), steps=(), usage=(), reductions=parts, **given)


def test_the_rank_that_comes_last_waits_for_nobody_and_its_duration_is_the_transfer():
    (split,) = reduction_splits(trace(part(0, 0, "b0", 0.0, 0.5, 300), part(0, 1, "b0", 0.2, 0.1, 100)))
    assert (split.reduction, split.sent_bytes) == ("b0", 200)
    assert (split.queue_s, split.transfer_s, split.peer_wait_s) == pytest.approx((0.1, 0.1, 0.2))


def test_each_step_has_its_own_least_and_the_heaviest_bucket_comes_first():
    rows = [part(0, 0, "light", 0.0, 0.1), part(0, 0, "b1", 0.0, 0.4), part(0, 1, "b1", 0.0, 0.2)]
    rows += [part(1, 0, "b1", 0.0, 0.6), part(1, 1, "b1", 0.0, 0.8)]
    heavy, light = reduction_splits(trace(*rows))
    assert (heavy.transfer_s, heavy.peer_wait_s) == pytest.approx((0.4, 0.1))
    assert (light.reduction, light.transfer_s, light.peer_wait_s) == ("light", 0.1, 0.0)


def test_steps_that_warm_up_do_not_count():
    (split,) = reduction_splits(trace(part(0, 0, "b0", 9.0, 9.0), part(5, 0, "b0", 0.0, 0.1)), 5)
    assert split.total_s == pytest.approx(0.1)


def test_of_asynchronous_ranks_nothing_follows_from_comparing_them():
    assert reduction_splits(trace(part(0, 0, "b0", 0.0, 0.1), is_asynchronous=True)) == ()


@given(
    st.dictionaries(
        st.tuples(st.integers(0, 3), st.integers(0, 3)), st.tuples(st.floats(0, 10), st.floats(0, 10)), min_size=1
    )
)
def test_the_split_adds_up_to_queue_and_duration(rows):
    found = reduction_splits(trace(*(part(step, rank, "b", *row) for (step, rank), row in rows.items())))
    assert found[0].total_s == pytest.approx(sum(map(sum, rows.values())) / len(rows))
    assert found[0].peer_wait_s >= 0


def test_a_slow_rank_is_in_the_peer_wait_of_a_report_and_a_slow_link_in_its_transfer():
    def of(**given):
        splits = Injected(workers=2, megabytes=1, **given).report().reductions
        return sum(split.transfer_s for split in splits), sum(split.peer_wait_s for split in splits)

    even, late, slow = of(), of(speeds={"n1": 0.25}), of(links={"n1 uplink": 20})
    assert late[1] > 4 * even[1]
    assert slow[0] > 4 * even[0]
