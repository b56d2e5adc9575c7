"""Processor sharing against closed forms."""

import pytest

from nfold.core.cluster import Channel, Node
from nfold.simulation.cores import Cores
from nfold.simulation.virtual_time import VirtualTime

LOCAL = Channel(latency_s=0.0, bandwidth_bytes_per_s=1e9, origin="declared")


def ends(jobs, *, cores, crowding=(1.0,), period_s=0.0):
    """End of each job, given as (begin, work, width)."""
    timeline = VirtualTime()
    node = Node(name="a", cores=cores, memory_bytes=1, local=LOCAL, crowding=crowding, quota_period_s=period_s)
    pool = Cores(timeline, node)
    found = {}
    for index, (begin, work, width) in enumerate(jobs):

        def begin_job(index=index, work=work, width=width):
            pool.start(work, width, lambda: found.setdefault(index, timeline.now))

        timeline.at(begin, begin_job)
    timeline.run()
    return [found[index] for index in range(len(jobs))]


def test_a_job_alone_takes_its_work():
    assert ends([(0, 3.0, 1)], cores=1) == [3.0]


def test_a_job_alone_with_more_threads_than_cores_takes_what_was_measured():
    assert ends([(0, 3.0, 4)], cores=2) == [3.0]


def test_two_jobs_on_one_core_take_twice_as_long():
    assert ends([(0, 1.0, 1), (0, 1.0, 1)], cores=1) == [2.0, 2.0]


def test_two_jobs_on_two_cores_do_not_meet():
    assert ends([(0, 1.0, 1), (0, 2.0, 1)], cores=2) == [1.0, 2.0]


def test_two_jobs_of_two_threads_on_two_cores_take_twice_as_long():
    assert ends([(0, 1.0, 2), (0, 1.0, 2)], cores=2) == [2.0, 2.0]


def test_the_short_job_ends_first_and_frees_the_core():
    # Half speed each until 2.0, when the short one is done; the other has 2.0 left.
    assert ends([(0, 1.0, 1), (0, 3.0, 1)], cores=1) == pytest.approx([2.0, 4.0])


def test_a_late_job_slows_what_is_left_of_the_first():
    assert ends([(0, 2.0, 1), (1, 2.0, 1)], cores=1) == pytest.approx([3.0, 4.0])


def test_crowding_slows_two_cores_that_share_a_cache():
    assert ends([(0, 1.0, 1), (0, 1.0, 1)], cores=2, crowding=(1.0, 1.25)) == pytest.approx([1.25, 1.25])


def test_milestones_move_with_the_job():
    timeline = VirtualTime()
    pool = Cores(timeline, Node(name="a", cores=1, memory_bytes=1, local=LOCAL))
    seen = []
    pool.start(
        1.0, 1, lambda: seen.append(("end", timeline.now)), ((0.5, lambda: seen.append(("half", timeline.now))),)
    )
    pool.start(1.0, 1, lambda: None)
    timeline.run()
    assert seen == [("half", 1.0), ("end", 2.0)]


def test_a_job_within_a_grant_does_not_meet_the_quota():
    # Measured at a quarter of a core, so it is 0.1 s of processor time, and 0.25 s are granted.
    assert ends([(0, 0.4, 1)], cores=0.25, period_s=1.0) == pytest.approx([0.1])


def test_a_job_beyond_its_grant_stands_still_until_the_next():
    # 0.6 s of processor time: 0.25 s at 0, 0.25 s at 1, 0.1 s at 2.
    assert ends([(0, 2.4, 1)], cores=0.25, period_s=1.0) == pytest.approx([2.1])


def test_a_job_that_begins_late_in_a_period_meets_the_next_grant_sooner():
    assert ends([(0.9, 1.2, 1)], cores=0.25, period_s=1.0) == pytest.approx([1.2])


def test_rest_is_not_saved_up():
    # 1.0 s of processor time after seven periods of rest: a grant is for its period alone.
    assert ends([(7, 4.0, 1)], cores=0.25, period_s=1.0) == pytest.approx([10.25])


def test_two_jobs_share_a_grant():
    # 0.2 s of processor time each on one core: 0.25 s of the 0.4 s at once, the rest a period later.
    assert ends([(0, 0.8, 1), (0, 0.8, 1)], cores=0.25, period_s=1.0) == pytest.approx([1.15, 1.15])


def test_whole_cores_do_not_meet_their_quota():
    jobs = [(0, 1.0, 1), (0, 1.0, 1), (0, 2.0, 1)]
    assert ends(jobs, cores=2, period_s=0.01) == pytest.approx(ends(jobs, cores=2))


def test_in_the_long_run_a_quota_is_its_share():
    assert ends([(0, 40.0, 1)], cores=0.25, period_s=0.01) == pytest.approx([40.0], rel=1e-3)
