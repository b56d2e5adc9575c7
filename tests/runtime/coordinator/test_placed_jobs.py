"""Jobs whose ranks train on samples of their own: what is compared, planned and ordered."""

from dataclasses import replace

import pytest
from coordinated import READY, Job, message
from pretended import GRAPH, a_plan, cluster, profile_of

from nfold.core import codec
from nfold.core.job import JobSettings, Known
from nfold.core.residency import EpochSamples, PlacedRun, RankSamples
from nfold.errors import PlanError, ProgramError
from nfold.runtime.control import events as ev
from nfold.runtime.coordinator.job_planning import build_orders
from nfold.runtime.coordinator.same_on_all_ranks import Other, check_alike

PLACED = PlacedRun(
    first_step=0,
    members=(0, 1),
    nodes=("pi0", "pi1"),
    epochs=(EpochSamples(from_epoch=0, by_rank=(RankSamples(own=((0, 60),)), RankSamples(own=((60, 100),)))),),
)
OWN = READY | {"num_samples": 60, "inventory": {"count": 50}}


def test_ranks_are_told_who_trains_on_what():
    job = Job(placed=(PLACED,), ready=OWN)
    job.until_planned()
    build = message(job.told, "build")
    assert [codec.decode(PlacedRun, each) for each in build["placed"]] == [PLACED]
    assert job.planned.plan.chunk_shares == (0.6, 0.4)
    assert job.planned.plan.chunks == 2


def test_ranks_that_read_all_data_are_told_that_none_are_placed():
    job = Job()
    job.until_planned()
    assert message(job.told, "build")["placed"] == []
    assert job.planned.plan.chunk_shares == ()


def test_the_samples_of_a_job_are_those_of_all_ranks():
    job = Job(placed=(PLACED,), ready=OWN)
    job.until_planned()
    assert job.planned.total_steps == 8
    assert (job.planned.recipe.num_samples, job.planned.recipe.items) == (100, None)


def test_who_holds_samples_stays_to_the_end():
    job = Job(placed=(PLACED,), ready=OWN)
    job.until_training()
    (note,) = job.handle(ev.ReleaseWanted(1))
    assert "stays until the end: each rank trains on the samples that live on its node" in note.text


def test_a_plan_that_would_have_ranks_read_samples_of_others_is_refused():
    job = Job(JobSettings(workers=2, strategy="pipeline"), placed=(PLACED,), ready=OWN)
    (failed,) = job.until_planned()
    assert "each rank trains on the samples that live on its node" in str(failed.error)


def test_chunks_of_single_samples_are_refused_before_the_first_step():
    few = (RankSamples(own=((0, 99),)), RankSamples(own=((99, 100),)))
    placed = replace(PLACED, epochs=(EpochSamples(from_epoch=0, by_rank=few),))
    known = Known(graph=GRAPH, profiles={1: profile_of(GRAPH)}, cluster=cluster())
    with pytest.raises(PlanError, match=r"rank 1 \(pi1\) would train on a single sample"):
        build_orders(known, a_plan(2), 8, placed=(placed,))


def test_data_of_ranks_own_are_not_compared_and_their_weights_are():
    theirs = OWN | {"num_samples": 7, "items": {"0": 99}, "first_pass": None}
    check_alike(OWN, Other(1), theirs)
    with pytest.raises(ProgramError, match=r"a\.bias, of module a, has first values"):
        check_alike(OWN, Other(1), theirs | {"weights": {"a.bias": 2, "a.weight": 7}})


def test_data_that_live_on_one_rank_alone_are_refused():
    with pytest.raises(ProgramError, match="only the data of rank 1 live on its node"):
        check_alike(READY, Other(1), OWN)


def test_a_sampler_of_the_programs_own_is_refused():
    job = Job(ready=OWN | {"orders": {"0": [60, 7]}})
    job.start()
    (failed,) = job.all_say("ready", **job.ready)
    assert "Leave the sampler out" in str(failed.error)
