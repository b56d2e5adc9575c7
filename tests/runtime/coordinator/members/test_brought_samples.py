"""Hosts that come later with samples of their own: these count from the next epoch on, or it is said why not."""

import re
from dataclasses import replace
from typing import Any

import pytest
from coordinated import message, orders
from living_hosts import Living, Told, begun, lives, newcomer, training

from nfold.core import codec
from nfold.core.options.averages import Averages
from nfold.core.residency import NodeData, PlacedData
from nfold.errors import PlanError
from nfold.planning.residency.epoch_steps import EpochSteps
from nfold.planning.residency.node_inventory import keys_of
from nfold.planning.residency.resident_order import count_samples
from nfold.runtime.coordinator.placing.brought import first_counted
from nfold.runtime.coordinator.placing.living_data import LivingData
from nfold.runtime.step.cells import Cells
from nfold.verbs.ranks.thread_ranks import threads_put_back


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Samples that come are kept in a folder of the test."""
    monkeypatch.setenv("NFOLD_DATA", str(tmp_path / "data"))
    with threads_put_back():
        yield


@pytest.mark.parametrize("place", ["waterfill", pytest.param("overlap", marks=pytest.mark.exhaustive)])
def test_what_a_host_brings_that_comes_later_counts_from_the_next_epoch_on(tmp_path, place):
    run = Living(tmp_path, {"pi": 18, "desk": 14}, {"new": 12}, place=place)
    run.train(3)
    run.come("new")
    assert run.until_planned(2) == 3
    epoch = EpochSteps.even(2).epoch(run.placed.runs[-1].first_step - 1) + 1
    note = run.until_noted("new brings 12 samples")
    assert note.startswith(
        f"new brings 12 samples: they count from epoch {epoch + 1} on, which has 44 samples in 3 steps; the run has "
    )
    assert [(member.node, member.is_brought) for member in run.placed.members][-1] == ("new", True)
    run.train(7)
    assert run.job.outcome.total_steps == 2 * epoch + 3 * (10**5 - epoch)
    run.leave(2)  # what it brought stays with the others
    assert run.until_planned(3) == 2
    run.train(4)
    run.end(longer_from=epoch)


@pytest.mark.exhaustive
@pytest.mark.parametrize("same", [True, False])
def test_a_run_goes_on_with_what_was_brought_though_its_host_is_gone(tmp_path, same):
    run = Living(tmp_path, {"pi": 18, "desk": 14}, {"new": 12})
    run.train(1)
    run.come("new")
    run.until_planned(2)
    epoch = run.placed.runs[-1].epochs[-1].from_epoch
    run.train(5)
    run.leave(2)
    run.until_planned(3)
    run.train(2)
    run.go_on("pi", "desk", same=same)
    run.train(3)
    run.end(longer_from=epoch)


@pytest.mark.exhaustive
def test_who_is_lost_before_what_it_brings_has_counted_takes_it_along(tmp_path, monkeypatch):
    """It joins, and all go back to the step that an epoch begins with: no step has counted its samples."""
    backward, armed = Cells._backward, []

    def vanish(self: Any, task: Any, emit: Any) -> None:
        if armed and self._schedule.rank == 2:
            armed.pop()()
        backward(self, task, emit)

    monkeypatch.setattr(Cells, "_backward", vanish)
    run = Living(tmp_path, {"pi": 18, "desk": 14}, {"new": 12})
    run.train(1)
    armed.append(lambda: run.cut_off(2))
    run.come("new")
    run.until_planned(3)
    assert run.told.worlds == [2, 3, 2]
    last = run.placed.runs[-1]
    came = {number for rank in last.epochs[-1].by_rank for first, end in rank.own for number in range(first, end)}
    gone = {*range(32, 44)} - came
    assert f"note: {len(gone)} samples of new do not count: they are gone before their first epoch" in run.told.notes
    run.train(4)
    steps = -(-len(came) // 16)
    epoch = next(each.from_epoch for each in last.epochs if count_samples(last, each.from_epoch) == len(came))
    assert run.job.outcome.total_steps == 2 * epoch + steps * (10**5 - epoch)
    run.end(longer_from=epoch, gone=gone)


def test_who_is_below_min_trains_again_once_somebody_is_back_whether_it_is_of_use_or_not(tmp_path, monkeypatch):
    """Neither what it brings can be placed, since an epoch would visit it twice, nor it."""
    placed_anew = LivingData.placed_anew

    def refusing(living: Any, gathered: Any, excluded: Any, *rest: Any) -> PlacedData:
        if len(gathered.members) - len(excluded) > 1 and not gathered.brought:
            raise PlanError("it has no room")
        data = placed_anew(living, gathered, excluded, *rest)
        *runs, run = data.runs
        twice = tuple(replace(each, by_rank=(each.by_rank[0],) * len(each.by_rank)) for each in run.epochs)
        return replace(data, runs=(*runs, replace(run, epochs=twice))) if gathered.brought else data

    run = Living(tmp_path, {"pi": 24, "desk": 8}, {"new": 12}, least=2)
    run.train(1)
    monkeypatch.setattr(LivingData, "placed_anew", refusing)
    run.told.alone = lambda: run.come("new")
    run.leave(1)
    assert run.until_planned(2) == 1
    note = run.until_noted("12 samples of new do not count")
    assert re.search(r"from epoch \d+ on, not each of \d+ samples is visited once$", note)
    assert "note: new cannot be used, and is let go: it has no room" in run.told.notes
    run.train(2)
    run.end()


@pytest.mark.exhaustive
def test_who_comes_is_let_go_if_it_is_of_no_use_though_another_was_lost_meanwhile(tmp_path, monkeypatch):
    placed_anew, tried = LivingData.placed_anew, []

    def refusing(living: Any, gathered: Any, excluded: Any, *rest: Any) -> PlacedData:
        if 2 in gathered.members and 2 not in excluded:
            tried.append(gathered.members)
            if len(tried) > 1:
                raise PlanError("it has no room")
            run.cut_off(1)
        return placed_anew(living, gathered, excluded, *rest)

    monkeypatch.setattr(LivingData, "placed_anew", refusing)
    run = Living(tmp_path, {"pi": 32, "idle": 0}, {"new": 12})
    run.train(1)
    run.come("new")
    run.until_noted("note: new cannot be used, and is let go: it has no room")
    run.train(1)
    assert tried[0] == (0, 1, 2)
    assert tried[-1] == (0, 2)
    run.end()


@pytest.mark.exhaustive
def test_who_has_come_is_let_go_if_it_has_no_use_any_more_once_another_is_lost(tmp_path, monkeypatch):
    """It was placed, and no step was trained since."""
    placed_anew, planned = LivingData.placed_anew, Told.planned

    def refusing(living: Any, gathered: Any, excluded: Any, *rest: Any) -> PlacedData:
        if 3 in run.told.worlds and 2 in gathered.members and 2 not in excluded:
            raise PlanError("it has no room")
        return placed_anew(living, gathered, excluded, *rest)

    def cutting(told: Told, plan: Any, folder: Any) -> None:
        planned(told, plan, folder)
        if told.worlds[-1] == 3:
            run.cut_off(1)

    monkeypatch.setattr(LivingData, "placed_anew", refusing)
    monkeypatch.setattr(Told, "planned", cutting)
    run = Living(tmp_path, {"pi": 32, "idle": 0}, place="equal")
    run.train(1)
    run.come("new")
    run.until_noted("note: new cannot be used, and is let go: it has no room")
    run.train(2)
    assert run.told.worlds == [2, 3, 1]
    run.end()


def test_an_epoch_under_way_keeps_its_samples_and_so_does_the_first_one():
    assert [first_counted(EpochSteps.even(4), step) for step in (0, 3, 4, 5)] == [1, 1, 1, 2]


OTHERS = {"first_pass": {"samples": 4, "outputs": []}}


@pytest.mark.parametrize(
    ("brings", "wishes", "ready", "told", "says"),
    [
        ({}, {"steps": 90}, {}, {}, "which would make epochs longer, and the run was asked for 90 steps in all"),
        ({}, {}, {"has_scheduler": True}, {}, "and Program(scheduler=...) was made for the steps that there are now"),
        ({}, {}, {"averages": codec.encode(Averages(kind="swa", every="epoch"))}, {}, "counts epochs of the steps"),
        ({"keys": keys_of({"a.jpg": "1"})}, {}, {}, {}, "they are named files, while those of the others are items"),
        ({}, {}, {}, {"first_pass": None}, "the program computes nothing from them"),
        ({}, {}, {}, OTHERS, "the model calls other modules with them than with those of the others"),
        ({"digest": "others"}, {}, {}, {}, "box-2 and pi-9 both hold the same 5 samples, as far as a few of them tell"),
    ],
)
def test_who_brings_samples_that_the_run_cannot_count_is_not_let_in(brings, wishes, ready, told, says):
    job = begun(lives(50), lives(50, digest="others"), **wishes)
    job.ready |= ready
    job.until_training()
    refused, finish = newcomer(job, lives(5, **brings), **ready | told)
    assert refused.text.startswith("note: member 2 (on pi-9, pid 77) is not let in: ")
    assert says in refused.text
    assert orders([finish]) == ["2 finish"]


def test_who_brings_samples_is_told_numbers_of_their_own():
    job = training(lives(50), lives(50, digest="others"))
    assert orders(newcomer(job, lives(5, digest="mine"))) == ["2 reside"]
    reside = message(job.told[-1:], "reside")
    assert (reside["first"], reside["total"], reside["num_begun"]) == (100, 105, 100)
    assert reside["brought"] == [[100, 105, "mine"]]


def test_who_has_brought_samples_before_may_bring_them_again():
    """The run went on without it, so nobody has looked at what it holds since."""
    job = training(lives(50), lives(50, digest="others"))
    living = job.coordinator._living
    back = NodeData(node="pi-9", num_samples=5, digest="mine", is_brought=True)
    living.data = replace(living.data, members=(*living.data.members, back))
    assert orders(newcomer(job, lives(5, digest="mine"))) == ["2 reside"]


def test_a_run_needs_nobody_for_pinned_samples_that_do_not_count():
    living = training(lives(50, num_pinned=7), lives(50)).coordinator._living
    late = NodeData(node="pi-9", num_samples=5, num_pinned=2, is_brought=True)
    living.data = replace(living.data, members=(*living.data.members, late))
    living._numbers[2] = 2
    assert [*living.indispensable((0, 1, 2))] == [0]
