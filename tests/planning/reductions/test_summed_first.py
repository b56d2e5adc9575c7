"""Which elements of a ring's sums each member has first: what it gives of a step to a newcomer that follows."""

from dataclasses import replace

from grids import chain, place

from nfold.core.tasks import Receive
from nfold.planning.reductions.buckets import buckets_of
from nfold.planning.reductions.ring_and_server_messages import summed_first
from nfold.planning.scheduling.schedule_compiler import compile_schedule


def test_members_sum_each_element_first_once_and_as_their_schedules_say():
    graph, placement = chain(50, 30), place({name: (0, 1, 2) for name in ("A", "B", "Loss")}, 3)
    (bucket,) = (replace(each, piece_elements=7) for each in buckets_of(graph, placement, "ring", 1 << 20))
    pieces = []
    for rank in compile_schedule(graph, placement, (bucket,), batch_size=16).ranks:
        last = [task.data for task in rank.tasks if isinstance(task, Receive) and task.completes]
        assert last == list(summed_first(bucket, rank.rank))
        pieces += last
    assert sorted(at for each in pieces for at in range(each.start, each.stop)) == list(range(bucket.num_elements))
