"""What is kept of long runs."""

from hypothesis import given
from hypothesis import strategies as st

from nfold.core.trace import SystemSample
from nfold.verbs.results.thinning import SystemSamples, Thinned, joined_samples


def sample(rank: int, at_s: float, rss_bytes: int = 0) -> SystemSample:
    return SystemSample(
        rank=rank,
        node="n0",
        at_s=at_s,
        span_s=1.0,
        compute_cpu_s=0.5,
        communication_cpu_s=0.25,
        throttled_s=0.125,
        steal_s=0.0625,
        neighbours_cpu_s=2.0,
        rss_bytes=rss_bytes,
        sent_bytes=10,
        received_bytes=20,
        disk_bytes=30,
    )


def test_short_runs_are_kept_whole() -> None:
    kept: Thinned[int] = Thinned(6)
    for step in range(3):
        kept.keep((step, step))
    assert kept.rows == (0, 0, 1, 1, 2, 2)


@given(st.integers(1, 300), st.integers(1, 4), st.integers(4, 20))
def test_long_runs_keep_every_so_manieth_step_and_never_too_many(steps: int, ranks: int, most: int) -> None:
    kept: Thinned[int] = Thinned(most)
    for step in range(steps):
        kept.keep((step,) * ranks)
        assert len(kept.rows) <= most
    assert [rows[0] for rows in kept.steps] == list(range(0, steps, kept.every))
    assert steps * ranks < 2 * most * kept.every


def test_joined_samples_cover_both_and_keep_the_larger_memory() -> None:
    joined = joined_samples(sample(0, 1.0, rss_bytes=9), sample(0, 2.0, rss_bytes=7))
    assert (joined.at_s, joined.span_s, joined.rss_bytes) == (2.0, 2.0, 9)
    assert (joined.compute_cpu_s, joined.communication_cpu_s, joined.throttled_s) == (1.0, 0.5, 0.25)
    assert (joined.steal_s, joined.neighbours_cpu_s) == (0.125, 4.0)
    assert (joined.sent_bytes, joined.received_bytes, joined.disk_bytes) == (20, 40, 60)


@given(st.integers(1, 200), st.integers(1, 3), st.integers(3, 9))
def test_samples_grow_longer_and_lose_nothing(seconds: int, ranks: int, most: int) -> None:
    samples = SystemSamples(most)
    for at_s in range(1, seconds + 1):
        samples.keep(tuple(sample(rank, float(at_s)) for rank in range(ranks)))
    rows = samples.rows
    assert len(rows) <= most + 2 * ranks
    for rank in range(ranks):
        own = [row for row in rows if row.rank == rank]
        assert sum(row.span_s for row in own) == seconds
        assert sum(row.sent_bytes for row in own) == 10 * seconds
        assert own == sorted(own, key=lambda row: row.at_s)
        assert own[-1].at_s == seconds
