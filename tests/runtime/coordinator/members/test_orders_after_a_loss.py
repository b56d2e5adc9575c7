"""Where no order of samples follows for those who are left, they go back to the checkpoint that was kept last."""

from dataclasses import replace
from typing import Any

from coordinated import LINK, READY, Job, file, orders
from hypothesis import given
from hypothesis import strategies as st
from living_hosts import begun, lives
from pretended import GRAPH, cluster, profile_of
from test_coming_and_going import lose
from test_placed_members import taken

from nfold.core.cluster import Cluster
from nfold.core.job import JobSettings, Known
from nfold.core.members import Member
from nfold.core.options.host_range import HostRange
from nfold.core.residency import EpochSamples, NodeData, PlacedData, PlacedRun, RankSamples, SampleMove, Spans
from nfold.planning.residency.resident_order import epoch_steps, placed_order, runs_before, step_sizes
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.coordinator.members import membership as ms
from nfold.runtime.coordinator.members.generations import Generations
from nfold.runtime.coordinator.members.membership import Membership
from nfold.runtime.coordinator.members.placed_regrouping import PlacedRegrouping
from nfold.runtime.coordinator.placing.kept_placement import lists_at
from nfold.runtime.coordinator.placing.living_data import LivingData
from nfold.runtime.coordinator.rank_requests import RankRequests
from nfold.runtime.coordinator.states.hand_over import HandOver
from nfold.runtime.failures.first_cause import Postmortem

NAMES = ("box", "box-2", "box-3")
LINKED = Cluster(nodes=tuple(replace(node, uplink=LINK, downlink=LINK) for node in cluster(*NAMES).nodes))


def given_away(held: tuple[int, int], gives: tuple[int, int]) -> PlacedData:
    """Two hosts have given their last samples to a third, which holds none of its own."""
    (one, other), total = held, sum(held)
    came: Spans = ((one - gives[0], one), (total - gives[1], total))
    ranks = tuple(RankSamples(own=spans) for spans in (((0, came[0][0]),), ((one, came[1][0]),), came))
    run = PlacedRun(
        first_step=0,
        members=(0, 1, 2),
        nodes=NAMES,
        epochs=(EpochSamples(from_epoch=0, by_rank=ranks),),
        moves=tuple(SampleMove(source=source, target=2, spans=(came[source],)) for source in (0, 1)),
        in_a_row=2,
    )
    members = tuple(NodeData(node=name, num_samples=count) for name, count in zip(NAMES, (one, other, 0), strict=True))
    plan: Any = None
    return PlacedData(members=members, key="", sample_bytes=1.0, runs=(run,), plan=plan)


def follows(data: PlacedData, step: int, batch: int) -> bool:
    """Whether each rank that is left has two samples or more of each later batch, or none."""
    epoch = epoch_steps(data.runs, batch).epoch(step)
    ranks = tuple(RankSamples(own=spans) for spans in lists_at(data, step, epoch, (0, 1)))
    epochs = (EpochSamples(from_epoch=epoch, by_rank=ranks),)
    after = PlacedRun(first_step=step, members=(0, 1), nodes=NAMES[:2], epochs=epochs, in_a_row=2)
    runs = (*runs_before(data.runs, step), after)
    begun = epoch_steps(runs, batch).first_step(epoch)
    sizes = [step_sizes(placed_order(runs, READY["seed"], each, batch), batch, 3) for each in (epoch, epoch + 1)]
    later = [*sizes[0][step - begun :], *sizes[1]]
    return not any((each == 1).any() and each.sum() > 1 for each in later)


def regrouping_of(data: PlacedData) -> PlacedRegrouping:
    """What is left of a job of three hosts that has lost the third."""
    settings = JobSettings(workers=3, strategy="ring", nodes=NAMES, cluster=LINKED, hosts=HostRange(1, 3))
    postmortem, membership = Postmortem(), Membership()
    for number, name in enumerate(NAMES[:2]):
        membership.take(ms.MemberCame(Member(number=number, host=name, pid=number)))
    membership.enlist((0, 1))
    requests = RankRequests(postmortem)
    generations = Generations(requests, membership, postmortem, HandOver(requests, membership))
    numbers = {0: 0, 1: 1, 2: 2}
    living = LivingData(settings, data, numbers, dict.fromkeys(numbers), 0.0, {})
    return PlacedRegrouping(settings, requests, generations, membership, living, 4)


@st.composite
def losses(draw: Any) -> tuple[PlacedData, int, int, int]:
    """Where samples were, those of a batch, the step that was done when the third was lost, and that of a file."""
    held = (draw(st.integers(8, 40)), draw(st.integers(8, 40)))
    gives = (draw(st.integers(1, held[0] - 2)), draw(st.integers(1, held[1] - 2)))
    batch = 2 * draw(st.integers(1, 6)) + 1
    step = draw(st.integers(1, 2 * (sum(held) // batch)))
    return given_away(held, gives), batch, step, draw(st.integers(0, step))


@given(lost=losses())
def test_a_state_takes_the_place_of_a_checkpoint_unless_the_checkpoint_alone_can_be_gone_on_from(lost):
    data, batch, step, kept = lost
    known = Known(graph=GRAPH, profiles={1: profile_of(GRAPH)}, cluster=LINKED)
    why = regrouping_of(data).further_back(known, READY | {"batch_size": batch, "chunks": 3}, step, kept)
    assert (why is not None) == (not follows(data, step, batch) and follows(data, kept, batch))
    assert why is None or "would train on a single sample" in str(why)


def losing_the_third(step: int) -> Job:
    """A job of three hosts that has kept a checkpoint after its first epoch, and has lost the third at a later step."""
    job = begun(lives(34), lives(33, digest="others"), lives(33, digest="third"))
    job.ready |= {"batch_size": 15, "epochs": 3}  # seven steps an epoch
    job.until_training()
    living = job.coordinator._living
    living.data, living._settings = given_away((21, 79), (13, 56)), replace(living._settings, place="nothing")
    for each in range(step):
        job.all_step(each)
        if each == 6:
            for rank in job.workers:
                job.say(rank, "checkpoint", file("epoch") if rank == 0 else None, has_file=rank == 0)
    lose(job, 2, 0, 1)
    job.all_say("abandoned", (0, 1))
    return job


def test_a_checkpoint_that_alone_can_be_gone_on_from_stays_and_all_go_back_to_it():
    job = losing_the_third(13)
    commands = job.all_say("recalled", (0, 1), states=taken(13))
    assert orders(commands) == ["Noted", "TakeState"], "nothing is kept in its place"
    assert commands[0].text.startswith("note: from step 14 on those who are left cannot train: rank ")
    assert orders(job.handle(ev.StateTaken(b"header"))) == ["01 connect"]
    job.all_say("connected", (0, 1))
    again = [each for each in job.told if isinstance(each, cmd.Replanned)]
    assert [(each.next_step, each.turnover.steps_again, each.turnover.again_from) for each in again] == [
        (7, 6, "a checkpoint")
    ]


def test_a_state_that_can_be_gone_on_from_takes_the_place_of_the_checkpoint():
    job = losing_the_third(12)
    assert orders(job.all_say("recalled", (0, 1), states=taken(12))) == ["01 connect"]
    assert orders(job.all_say("connected", (0, 1))) == ["0 keep", "1 keep"]
