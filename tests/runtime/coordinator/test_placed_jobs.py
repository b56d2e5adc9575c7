"""Jobs whose ranks train on samples of their own: what is compared, planned and ordered."""

from dataclasses import replace

import pytest
from coordinated import READY, Job, failure, message, orders
from pretended import GRAPH, a_plan, cluster, profile_of

from nfold.core import codec
from nfold.core.cluster import Channel, Cluster
from nfold.core.job import Begun, JobSettings, Known
from nfold.core.residency import EpochSamples, NodeData, PlacedData, PlacedRun, RankSamples, SampleMove
from nfold.errors import PlanError, ProgramError
from nfold.planning.residency.node_inventory import Inventory, keys_of
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.coordinator.job_planning import build_orders
from nfold.runtime.coordinator.placing.inventories import as_called
from nfold.runtime.coordinator.placing.kept_placement import lists_at
from nfold.runtime.coordinator.placing.loans import LENT
from nfold.runtime.coordinator.rank_requests import RankRequests
from nfold.runtime.coordinator.same_on_all_ranks import Other, check_alike
from nfold.runtime.failures.first_cause import Postmortem

PLACED = PlacedRun(
    first_step=0,
    members=(0, 1),
    nodes=("pi0", "pi1"),
    epochs=(EpochSamples(from_epoch=0, by_rank=(RankSamples(own=((0, 60),)), RankSamples(own=((60, 100),)))),),
)
OWN = READY | {"num_samples": 60, "inventory": {}}


def lives(count, **told):
    """What lives on a node."""
    return Inventory(**{"num_samples": count, "sample_bytes": 100.0, "num_pinned": 0, "digest": f"{count}"} | told)


def placed_job(*inventories, **wishes):
    """A job of two nodes that hold what they say."""
    names = ("box", "box-2")[: len(inventories)]
    settings = JobSettings(
        **{"workers": len(inventories), "strategy": "ring", "nodes": names, "cluster": cluster(*names)} | wishes
    )
    return Job(settings, inventories=inventories)


def test_ranks_are_told_who_trains_on_what():
    job = placed_job(lives(60), lives(40))
    job.until_planned()
    build = message(job.told, "build")
    expected = replace(PLACED, nodes=("box", "box-2"), in_a_row=GRAPH.least_chunk)
    assert [codec.decode(PlacedRun, each) for each in build["placed"]] == [expected]
    assert (build["moves"], build["members"]) == ([], [0, 1])
    assert job.planned.plan.chunk_shares == (0.6, 0.4)
    assert job.planned.plan.chunks == 2


def test_ranks_that_read_all_data_are_told_that_none_are_placed():
    job = Job()
    job.until_planned()
    assert message(job.told, "build")["placed"] == []
    assert job.planned.plan.chunk_shares == ()


def test_the_samples_of_a_job_are_those_of_all_ranks():
    job = placed_job(lives(60), lives(40))
    job.until_planned()
    assert job.planned.total_steps == 8
    assert (job.planned.recipe.num_samples, job.planned.recipe.items) == (100, None)


def test_who_holds_samples_stays_to_the_end():
    job = placed_job(lives(60), lives(40))
    job.until_training()
    (note,) = job.handle(ev.ReleaseWanted(1))
    assert "stays until the end: each rank trains on the samples that live on its node" in note.text


def test_a_plan_that_would_have_ranks_read_samples_of_others_is_refused():
    job = placed_job(lives(60), lives(40), strategy="pipeline")
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


def test_who_holds_nothing_is_lent_a_few_samples_before_anything_is_measured():
    job = placed_job(lives(100), lives(0), place="auto")
    job.start()
    assert orders(job.all_reside()) == ["01 listen"]
    assert orders(job.wire()) == ["Prepared", "0 move", "1 move"]
    (loan,) = message(job.told, "move")["moves"]
    assert codec.decode(SampleMove, loan) == SampleMove(source=0, target=1, spans=((0, LENT),))
    assert orders(job.all_say("moved", bytes=800, seconds=0.1)) == ["0 profile"]


def test_each_run_has_a_place_of_its_own_for_items_and_a_plan_keeps_none():
    orders_given = []
    for wishes in ({"run": "one"}, {"run": "other", "keeps_samples": False}):
        job = placed_job(lives(60), lives(40), **wishes)
        job.start()
        job.all_reside()
        orders_given.append(message(job.told, "reside"))
    assert orders_given[0]["key"] != orders_given[1]["key"]
    assert [order["is_kept"] for order in orders_given] == [True, False]


@pytest.mark.parametrize(
    ("inventory", "place", "why"),
    [
        (lives(100), "nothing", "--place nothing gives it none"),
        (lives(100, num_pinned=100), "auto", "all samples of others are pinned"),
    ],
)
def test_who_will_be_given_nothing_leaves_before_anything_is_measured(inventory, place, why):
    job = placed_job(inventory, lives(0), place=place)
    job.start()
    gone = job.all_reside()
    assert orders(gone)[-2:] == ["1 abandon", "1 finish"]
    assert gone[-3].text == f"note: box-2 is left out: it holds no samples, and {why}"
    assert orders(job.say(1, "finished", usage=None)) == ["0 listen"]
    job.say(0, "listening", address=["10.0.0.1", 5000])
    assert orders(job.say(0, "connected")) == ["Prepared", "0 profile"]


def test_a_run_that_was_placed_does_not_go_on_without_data_on_nodes():
    job = going_on(PLACED)
    job.inventories = ()
    job.start()
    assert "nobody says any more which samples live where" in str(failure(job.all_say("ready", **READY)))


def test_a_run_that_was_not_placed_does_not_go_on_with_data_on_nodes():
    job = placed_job(lives(60), lives(40), begun=Begun(batch_size=25, steps_per_epoch=4))
    job.start()
    assert "the run was begun with data that all ranks have" in str(failure(job.all_reside()))


def test_data_that_live_on_the_first_rank_alone_are_refused_before_they_are_counted():
    job = placed_job(lives(60), lives(40))
    job.start()
    job.say(0, "ready", **READY | {"inventory": codec.encode(lives(60))})
    assert "only the data of rank 0 live on its node" in str(failure(job.say(1, "ready", **READY)))


def test_a_run_does_not_go_on_where_it_would_move_what_is_pinned_now():
    job = going_on(DRAINED)
    job.inventories = (lives(60, num_pinned=5), lives(40))
    job.start()
    told = str(failure(job.all_reside()))
    assert told.startswith("box pins 5 samples, and the run was to train on 5 of them on other nodes.")


def test_the_one_node_of_a_run_may_be_called_otherwise():
    was = (NodeData(node="box", num_samples=60, digest="60"),)
    kept = PlacedData(members=was, key="key", sample_bytes=1.0, runs=(), plan=None)
    assert as_called(kept, (replace(was[0], node="moved"),)) == was
    other = (NodeData(node="moved", num_samples=60, digest="others"),)
    assert as_called(kept, other) == other


def test_what_moves_while_ranks_come_to_rest_is_told():
    requests = RankRequests(Postmortem())
    flow = requests.ask((0,), {"do": "drop"}, "dropped")
    next(flow)
    flow.send(ev.Received(0, {"is": "moved", "bytes": 7, "seconds": 1.0}, None))
    with pytest.raises(StopIteration):
        flow.send(ev.Received(0, {"is": "dropped"}, None))
    told = next(requests.ask((0,), {"do": "finish"}, "finished"))
    assert told[0] == cmd.Moved(7, 1.0, beside_training=True)


def test_a_loan_over_a_link_that_is_too_slow_is_refused():
    slow = Channel(latency_s=0.0, bandwidth_bytes_per_s=1.0, origin="declared")
    one, other = cluster("box", "box-2").nodes
    declared = Cluster(nodes=(one, replace(other, downlink=slow)))
    job = placed_job(lives(100), lives(0), cluster=declared, place="auto")
    job.start()
    job.all_reside()
    told = str(failure(job.wire()))
    assert told.startswith("box-2 holds no samples, and the 8 that it must have to be timed, 800 B, take 13.3 min")


DRAINED = replace(
    PLACED,
    members=(1,),
    nodes=("box-2",),
    epochs=(EpochSamples(from_epoch=0, by_rank=(RankSamples(own=((60, 100), (0, 60))),)),),
    moves=(SampleMove(source=0, target=1, spans=((0, 60),)),),
)


def going_on(run, brought=(), **wishes):
    """The job of a run that goes on from its first step with the same nodes."""
    plan = placed_job(lives(60), lives(40))
    plan.until_planned()
    first = next(each.data for each in plan.told if isinstance(each, cmd.Placed))
    lived = tuple(NodeData(node=node, num_samples=count, digest=f"{count}") for node, count in LIVED)
    data = PlacedData(
        members=(*lived, *brought),
        key="key", sample_bytes=100.0, runs=(run,), plan=first.plan,
    )  # fmt: skip
    known = replace(plan.planned.known, plan=replace(a_plan(len(run.members)), nodes=run.nodes))
    job = placed_job(lives(60), lives(40), begun=Begun(batch_size=25, steps_per_epoch=4, placed=data), **wishes)
    return replace(job, known=known)


LIVED = (("box", 60), ("box-2", 40))


def test_who_has_given_all_away_leaves_before_training():
    job = going_on(DRAINED)
    job.start()
    job.all_reside()
    assert orders(job.wire()) == ["Prepared", "Placed", "Planned", "0 move", "1 move"]
    assert message(job.told, "move")["members"] == [0, 1]
    gone = job.all_say("moved", bytes=6000, seconds=0.5)
    assert orders(gone) == ["Noted", "Moved", "Prepared", "Placed", "0 abandon", "0 finish"]
    placed = next(each.data for each in gone if isinstance(each, cmd.Placed))
    assert lists_at(placed, 0, 0, (1,)) == [((60, 100), (0, 60))], "who has left is not needed, whoever is lost now"
    assert orders(job.say(0, "finished", usage=None)) == ["1 connect"]
    assert orders(job.say(1, "connected")) == ["1 build"]


def test_what_was_to_count_later_and_is_not_there_when_a_run_goes_on_is_told():
    later = EpochSamples(from_epoch=1, by_rank=(*PLACED.epochs[0].by_rank, RankSamples(own=((100, 110),))))
    begun = replace(PLACED.epochs[0], by_rank=(*PLACED.epochs[0].by_rank, RankSamples(own=())))
    run = replace(PLACED, members=(0, 1, 2), nodes=("box", "box-2", "x"), epochs=(begun, later), has_moved=True)
    job = going_on(run, brought=(NodeData(node="x", num_samples=10, is_brought=True),))
    job.start()
    job.all_reside()
    told = [each.text for each in job.told if isinstance(each, cmd.Noted)]
    assert told == ["note: 10 samples of x do not count: they are gone before their first epoch"]


def test_what_comes_while_training_is_ordered_with_what_is_built():
    second = PLACED.epochs[0].by_rank[1]
    coming = (RankSamples(own=((0, 50),)), RankSamples(own=second.own, arriving=((50, 60),)))
    come = (RankSamples(own=((0, 50),)), RankSamples(own=((60, 100), (50, 60))))
    move = SampleMove(source=0, target=1, spans=((50, 60),), epoch=0)
    epochs = (EpochSamples(from_epoch=0, by_rank=coming), EpochSamples(from_epoch=1, by_rank=come))
    job = going_on(replace(PLACED, nodes=("box", "box-2"), epochs=epochs, moves=(move,)))
    job.start()
    job.all_reside()
    assert orders(job.wire()) == ["Prepared", "Placed", "Planned", "0 build", "1 build"]
    (moving,) = message(job.told, "build")["moves"]
    assert codec.decode(SampleMove, moving) == move
    job.workers = range(2)
    job.all_say("built", kept={}, notes=[], seconds=1.0)
    (moved,) = job.say(1, "moved", bytes=1000, seconds=2.0)
    assert moved == cmd.Moved(1000, 2.0, beside_training=True)


def test_two_nodes_that_claim_one_file_are_refused():
    job = placed_job(lives(2, keys=keys_of({"a": 1, "b": 2})), lives(1, keys=keys_of({"b": 2})))
    job.start()
    told = str(failure(job.all_reside()))
    assert told.startswith("box and box-2 both hold one sample: file 2 of 2 on box and file 1 of 1 on box-2")


def test_servers_that_would_train_on_nothing_are_refused():
    job = placed_job(lives(60), lives(40), workers=1, servers=1)
    job.start()
    assert "dedicated servers would train on nothing" in str(failure(job.all_reside()))
