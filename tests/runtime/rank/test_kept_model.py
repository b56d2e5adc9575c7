"""Who stays in a replicated plan goes on with its model while others come, leave and are lost, to the same result."""

from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest
import torch
from elastic import CHUNKS, Elastic
from harness import CPU, difference, graph_of, make_plan, play, read_checkpoint
from nets import program
from random_members import undisturbed, unlike
from shadows import Followed, one_device, rich, until_followed, watch_shadows
from torch import nn

from nfold.planning.scheduling.rank_schedules import rank_schedules
from nfold.program import Program
from nfold.runtime.parameters.buffers import Buffers
from nfold.runtime.rank.rank_of_generation import Rank
from nfold.runtime.snapshots import lending
from nfold.runtime.step.built_model import KeptModel, Part
from nfold.runtime.step.cells import Cells
from nfold.runtime.step.replica import Replica
from nfold.transport.generations.no_way import alone
from nfold.verbs.ranks.thread_ranks import threads_put_back
from nfold.verbs.running.run import Run

STATE = (0, 3)


@pytest.fixture(autouse=True)
def threads():
    with threads_put_back():
        yield


@pytest.fixture
def trained(monkeypatch):
    """The models that each member trained, one for each of its generations."""
    found, begin = defaultdict(list), Rank._do_build

    def note(self, order, header):
        begin(self, order, header)
        found[self._process.member].append(self._replica.built)

    monkeypatch.setattr(Rank, "_do_build", note)
    return found


def join_and_leave(source: Program, folder: Any, **wishes: Any) -> tuple[Elastic, Run]:
    """Let a third come to two and the first one leave; return the run and its end."""
    run = Elastic(source, folder, may_lose=True, **wishes)
    run.train(2)
    run.session.request()
    run.until_planned(2)
    run.train(2)
    run.session.release(0)
    run.until_planned(3)
    run.train(2)
    return run, run.end()


@pytest.mark.parametrize("protect", ["auto", pytest.param("off", marks=pytest.mark.exhaustive)])
def test_who_stays_trains_the_same_tensors_and_the_result_is_one_devices(tmp_path, trained, protect):
    run, ended = join_and_leave(rich(), tmp_path / "run", protect=protect)
    assert [len(trained[member]) for member in range(3)] == [2, 3, 2]
    for member, built in trained.items():
        assert len(set(map(id, built))) == 1, f"member {member} built anew"
    trained_alone, averaged_alone = one_device(run.step)
    assert difference(ended.state_dict(), trained_alone) <= 1e-9
    assert difference(ended.average_state_dict(), averaged_alone) <= 1e-9


class Saying(nn.Linear):
    """Says something beside its tensors, which may be other on each rank."""

    def get_extra_state(self) -> dict[str, int]:
        return {"version": 2}

    def set_extra_state(self, state: dict[str, int]) -> None:
        pass


def test_a_model_of_which_ranks_may_differ_is_built_anew(tmp_path, trained):
    saying = replace(program("plain"), model=lambda: nn.Sequential(nn.Flatten(), Saying(128, 4)).double())
    join_and_leave(saying, tmp_path / "run")
    assert [len(set(map(id, trained[member]))) for member in range(3)] == [2, 3, 2]


@pytest.mark.parametrize("lost", [1, pytest.param(2, marks=pytest.mark.exhaustive)])
def test_who_is_lost_while_somebody_comes_takes_nothing_along(tmp_path, monkeypatch, trained, lost):
    """One of those who stay, or the newcomer itself, in the moment in which the newcomer builds."""
    begin, armed = Rank._do_build, []

    def lose(self, order, header):
        if armed and self._process.member == 2:
            armed.pop()()
        begin(self, order, header)

    monkeypatch.setattr(Rank, "_do_build", lose)
    run = Elastic(rich(), tmp_path / "run", may_lose=True)
    run.train(5)
    armed.append(lambda: run.cut_off(lost))
    run.session.request()
    run.until_planned(3)
    run.train(4)
    weights = run.end().state_dict()
    assert not armed
    assert difference(weights, one_device(run.step)[0]) <= 1e-9
    assert sum(event.steps_again or 0 for event in run.folder.events()) == 0


MOMENTS: dict[str, tuple[type, str]] = {
    "forward": (Cells, "_forward"),
    "backward": (Cells, "_backward"),
    "a sum": (Buffers, "combine"),
    "the update": (Cells, "_update"),
}


@pytest.mark.parametrize(
    ("moment", "lost"),
    [
        ("backward", 1),
        ("a sum", 0),
        *(pytest.param(*each, marks=pytest.mark.exhaustive) for each in (("forward", 2), ("the update", 1))),
    ],
)
def test_who_is_left_after_a_loss_trains_the_same_tensors_to_same_bits(tmp_path, monkeypatch, trained, moment, lost):
    """Within a step, when sums of some gradients may be there, in part or not at all."""
    where, armed = MOMENTS[moment], []
    begin = getattr(*where)

    def lose(self, *task):
        if armed:
            armed.pop()()
        return begin(self, *task)

    monkeypatch.setattr(*where, lose)
    torch.set_num_threads(1)
    mine = rich(dropout=0.3)
    run = Elastic(mine, tmp_path / "run", may_lose=True, workers=3, exact=True)
    run.train(3)
    armed.append(lambda: run.cut_off(lost))
    run.until_planned(2)
    run.train(3)
    found = run.end().state_dict()
    num_kept = sum(len(built) == 2 and built[0] is built[1] for built in trained.values())
    assert [event.steps_again for event in run.folder.events()] == [0]
    assert not unlike(found, undisturbed(mine, tmp_path / "alone", run.step))
    assert num_kept == 2 or (num_kept == 1 and moment in ("a sum", "the update")), "only who is behind builds anew"


def built_for(mine: Program, strategy: str, workers: int, kept: KeptModel, state: Any, **wishes: Any) -> Replica:
    """What the first rank of a plan builds, or goes on with."""
    graph = wishes.pop("graph", None) or graph_of(mine)
    plan = make_plan(mine, graph, strategy, workers, 0, wishes.pop("chunks", CHUNKS))
    own = rank_schedules(plan, graph)[0]
    checkpoint = wishes.pop("checkpoint", None)
    built = kept.take(Part.of(0, mine, graph, plan, own), state, checkpoint)
    given = (0, mine, mine.train_data(), graph, plan, own, alone(0, plan.world_size))
    return Replica(*given, device=CPU, last_step=9, built=built, checkpoint=checkpoint)


@pytest.mark.parametrize(
    ("strategy", "workers", "chunks", "state", "stays"),
    [
        ("ring", 3, CHUNKS, STATE, True),
        ("ring", 3, CHUNKS, (1, 3), False),
        ("ring", 3, CHUNKS, None, False),
        ("ring", 3, 6, STATE, False),
        ("ps", 3, CHUNKS, STATE, False),
        ("pipeline", 2, CHUNKS, STATE, False),
        ("single", 1, CHUNKS, STATE, False),
    ],
)
def test_another_part_or_another_state_builds_anew(strategy, workers, chunks, state, stays):
    mine, kept = program("plain"), KeptModel()
    graph = graph_of(mine)
    first = built_for(mine, "ring", 2, kept, None, graph=graph)
    first.close()
    kept.keep(first.built, STATE)
    second = built_for(mine, strategy, workers, kept, state, graph=graph, chunks=chunks)
    second.close()
    assert (second.built is first.built) == stays
    assert kept.take(first.built.part, STATE, None) is None, "it is trained now, or is gone"


def test_a_closed_rank_leaves_nothing_on_the_model_that_is_kept():
    mine, kept = program("residual"), KeptModel()
    graph = graph_of(mine)
    hooks = []
    for _ in range(3):
        replica = built_for(mine, "ring", 2, kept, STATE, graph=graph)
        model = replica.model
        hooks.append(
            sum(len(each._post_accumulate_grad_hooks or ()) for each in model.parameters())
            + sum(len(each._forward_hooks) + len(each._forward_pre_hooks) for each in model.modules())
        )
        replica.close()
        kept.keep(replica.built, STATE)
    assert hooks[0] == hooks[1] == hooks[2] > 0


def test_what_was_built_before_it_was_needed_takes_all_of_the_state():
    mine, kept, graph = rich(), KeptModel(), graph_of(rich())
    played = play(mine, graph, make_plan(mine, graph, "ring", 2, 0, CHUNKS), 3)
    assert played.checkpoint is not None
    checkpoint = read_checkpoint(played.checkpoint)
    new = built_for(mine, "ring", 2, kept, None, graph=graph)
    new.close()
    kept.keep(new.built, None)
    later = built_for(mine, "ring", 3, kept, STATE, graph=graph, checkpoint=checkpoint)
    anew = built_for(mine, "ring", 3, kept, STATE, graph=graph, checkpoint=checkpoint)
    assert later.built is new.built is not anew.built
    one, other = (each.held(is_checked=False) for each in (later, anew))
    assert [part.described for part in one.parts] == [part.described for part in other.parts]
    assert any(part.name.startswith("average.") for part in one.parts)
    for part, same in zip((*one.parts, *one.rest), (*other.parts, *other.rest), strict=True):
        assert torch.equal(part.values, same.values), part.name
    updaters = (*later.built.updaters.values(), *anew.built.updaters.values())
    (rate,) = {group["lr"] for each in updaters for group in each._optimizer.param_groups}
    assert rate == pytest.approx(1e-3 * 0.9**3)
    later.close()
    anew.close()


@pytest.fixture
def followed(monkeypatch) -> Followed:
    """Each newcomer follows, however quick its link is, and plays two steps at least."""
    return watch_shadows(monkeypatch)


@pytest.fixture
def taken(monkeypatch):
    """Of each model that was built: the state of that which the process had kept, and the state that it is to have."""
    found, take = [], KeptModel.take

    def note(self, part, state, checkpoint):
        found.append((self._kept[1] if self._kept else None, state))
        return take(self, part, state, checkpoint)

    monkeypatch.setattr(KeptModel, "take", note)
    return found


def test_a_newcomer_that_has_followed_reads_nothing_and_all_end_with_one_devices_bits(tmp_path, taken, followed):
    torch.set_num_threads(1)
    mine = rich()
    run = Elastic(mine, tmp_path / "run", may_lose=True, exact=True)
    until_followed(run, followed)
    run.until_planned(2)
    run.train(3)
    found = run.end().state_dict()
    (event,) = run.folder.events()
    assert followed.steps == list(range(followed.steps[0], followed.steps[-1] + 1))
    assert [kept == state for kept, state in taken[-3:]] == [True] * 3, "all go on with the model that they have"
    assert event.moved_bytes > 0
    assert not unlike(found, undisturbed(mine, tmp_path / "alone", run.step))


@pytest.mark.exhaustive
def test_several_newcomers_follow_one_after_another_and_all_end_with_one_devices_bits(tmp_path, trained, followed):
    torch.set_num_threads(1)
    mine = rich()
    run = Elastic(mine, tmp_path / "run", may_lose=True, exact=True)
    run.train(2)
    for _ in range(2):
        run.session.request()
    run.until_planned(3)
    run.train(3)
    found = run.end().state_dict()
    assert [plan.workers for plan in run.told.plans] == [2, 3, 4]
    assert [len(set(map(id, built))) for built in trained.values()] == [1] * 4
    assert sum("follows as a shadow" in note for note in run.told.notes) == 2
    assert not any("follows no more" in note for note in run.told.notes)
    assert not unlike(found, undisturbed(mine, tmp_path / "alone", run.step))


@pytest.mark.parametrize("exact", [True, False])
def test_a_newcomer_follows_one_that_trains_alone_to_one_devices_result(tmp_path, taken, followed, exact):
    torch.set_num_threads(1)
    mine = rich()
    run = Elastic(mine, tmp_path / "run", may_lose=True, workers=1, exact=exact)
    until_followed(run, followed)
    run.until_planned(2)
    run.train(3)
    ended = run.end()
    assert [plan.workers for plan in run.told.plans] == [1, 2]
    state = taken[-1][1]
    assert set(taken[-2:]) == {(None, state), (state, state)}, "the one builds anew, the other has followed"
    trained_alone, averaged_alone = one_device(run.step)
    assert difference(ended.state_dict(), trained_alone) <= 1e-9
    assert difference(ended.average_state_dict(), averaged_alone) <= 1e-9
    assert not exact or not unlike(ended.state_dict(), undisturbed(mine, tmp_path / "alone", run.step))


@pytest.mark.exhaustive
def test_a_shadow_that_falls_behind_is_given_up_and_joins_as_others_do(tmp_path, monkeypatch, followed):
    monkeypatch.setattr(lending, "_TIMES_STATE", -(10**6))
    run = Elastic(rich(), tmp_path / "run", may_lose=True)
    run.train(2)
    run.session.request()
    run.until_noted("follows no more: it takes sums too slowly")
    run.until_planned(2)
    run.train(2)
    assert not followed.steps
    assert difference(run.end().state_dict(), one_device(run.step)[0]) <= 1e-9


@pytest.mark.parametrize(
    ("workers", "lost"), [(3, 1), *(pytest.param(*each, marks=pytest.mark.exhaustive) for each in ((3, 3), (1, 1)))]
)
def test_a_loss_while_somebody_follows_costs_no_step(tmp_path, trained, followed, workers, lost):
    """Of a rank that lends, or of the shadow itself."""
    followed.are_held = True
    run = Elastic(rich(), tmp_path / "run", may_lose=True, workers=workers)
    until_followed(run, followed)
    run.cut_off(lost)
    followed.are_held = False
    if lost < workers:
        run.until_planned(3)
    else:
        run.until_noted("before it was let in")
    run.train(3)
    weights = run.end().state_dict()
    assert difference(weights, one_device(run.step)[0]) <= 1e-9
    assert sum(event.steps_again or 0 for event in run.folder.events()) == 0


def test_a_run_keeps_its_state_and_ends_while_somebody_follows(tmp_path, followed):
    followed.are_held = True
    run = Elastic(rich(), tmp_path / "run", may_lose=True, steps=60, checkpoint_every=20)
    until_followed(run, followed)
    weights = run.to_the_end().state_dict()
    assert run.step == 60
    assert len(run.told.plans) == 1, "nobody has joined"
    assert difference(weights, one_device(60)[0]) <= 1e-9
