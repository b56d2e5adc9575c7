"""What a shadow is given of a step under any plan, and what it plays: all that changes the state, once."""

import pytest
from grids import grids
from hypothesis import assume, given, settings

from nfold.core.placement import Placement, Reduction
from nfold.core.plan import Plan, Prediction
from nfold.core.tasks import FoldStatistics, Receive
from nfold.planning.scheduling.schedule_compiler import compile_schedule
from nfold.planning.scheduling.shadow_part import are_all_sums, sums_of, whole_plan, whole_schedule

pytestmark = pytest.mark.long


def plan_of(placement: Placement, reductions: tuple[Reduction, ...]) -> Plan:
    world = placement.world_size
    return Plan(
        strategy="by hand",
        chunks=placement.num_chunks,
        batch_size=16,
        workers=world,
        servers=0,
        nodes=("box",) * world,
        threads=(1,) * world,
        placement=placement,
        reductions=reductions,
        loads_s=(0.0,) * world,
        predicted=Prediction(step_s=1.0, sent_bytes_per_step=0, peak_memory_bytes=(0,) * world),
    )


@given(grids())
@settings(max_examples=40, deadline=None)
def test_ranks_give_each_sum_once_as_their_schedules_make_it_and_a_shadow_plays_them_all(grid):
    graph, placement, reductions = grid
    assume(len(placement.working) > 1)
    ranks = compile_schedule(graph, placement, reductions, batch_size=16).ranks
    place = (reductions, ranks[0].statistics, placement.num_chunks)
    given_by = [sums_of(rank.rank, *place, clips=graph.clips_gradients) for rank in ranks]
    for rank, sums in zip(ranks, given_by, strict=True):
        made = {task.data for task in rank.tasks if isinstance(task, Receive) and task.completes}
        sent = {each.name for each in reductions if each.route != "local"}
        assert made == {each for each in sums if each.name in sent}
    every = [each for sums in given_by for each in sums]
    plan = plan_of(placement, reductions)
    alone, played = whole_plan(plan, "there", 2), whole_schedule(plan, graph)
    assert (alone.world_size, alone.placement.working) == (1, (0,))
    own = (alone.reductions, played.statistics, placement.num_chunks)
    assert are_all_sums(every, *own, clips=graph.clips_gradients)
    for index in range(len(every)):
        assert not are_all_sums(every[:index] + every[index + 1 :], *own, clips=graph.clips_gradients)
    folded = {task.group for task in played.tasks if isinstance(task, FoldStatistics)}
    assert folded == {task.group for rank in ranks for task in rank.tasks if isinstance(task, FoldStatistics)}
