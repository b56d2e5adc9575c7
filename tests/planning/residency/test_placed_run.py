"""From how many samples live where to which ones: every sample once in every epoch, on a rank that has it by then."""

from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scattered import cluster, demand, random_problem

from nfold.core import codec
from nfold.core.residency import METHODS, EpochSamples, PlacedRun, RankSamples, SampleMove
from nfold.errors import InternalError
from nfold.planning.residency.best_place import place
from nfold.planning.residency.model.problem import problem_of
from nfold.planning.residency.model.spans import num_samples
from nfold.planning.residency.placed_run import check_supply, placed_run


def listed(problem):
    """The same question, where each node lists its samples: one after another."""
    ends = list(accumulate(holding.num_samples for holding in problem.residency.holdings))
    holdings = [
        replace(each, spans=((end - each.num_samples, end),) if each.num_samples else ())
        for each, end in zip(problem.residency.holdings, ends, strict=True)
    ]
    return replace(problem, residency=replace(problem.residency, holdings=tuple(holdings)))


def numbers(spans):
    return [number for first, end in spans for number in range(first, end)]


def own_and_arriving(rank):
    return numbers((*rank.own, *rank.arriving))


def placed(problem, method):
    plan = place(listed(problem), method)
    return plan, placed_run(plan, range(len(plan.nodes)), first_step=7, first_epoch=3)


WAYS = [method for method in METHODS if method not in ("ilp", "nothing")]


@given(seed=st.integers(0, 1 << 30), method=st.sampled_from(WAYS))
def test_every_epoch_visits_every_sample_once(seed, method):
    plan, run = placed(random_problem(seed), method)
    for epoch in run.epochs:
        visited = [number for rank in epoch.by_rank for number in own_and_arriving(rank)]
        assert sorted(visited) == list(range(plan.before.num_samples))


@given(seed=st.integers(0, 1 << 30), method=st.sampled_from(WAYS))
def test_who_trains_on_a_sample_has_it_or_is_sent_it_by_who_has(seed, method):
    problem = random_problem(seed)
    plan, run = placed(problem, method)
    has = [set(numbers(holding.spans)) for holding in plan.before.holdings]
    for move in (move for move in run.moves if move.epoch is None):
        assert set(numbers(move.spans)) <= has[move.source]
        has[move.target] |= set(numbers(move.spans))
    for index, epoch in enumerate(run.epochs):
        after = run.epochs[index + 1].from_epoch if index + 1 < len(run.epochs) else epoch.from_epoch + 1
        for member, rank in zip(run.members, epoch.by_rank, strict=True):
            assert set(numbers(rank.own)) <= has[member], "own samples are there when the epoch begins"
        for move in (move for move in run.moves if move.epoch is not None and epoch.from_epoch <= move.epoch < after):
            assert move.source in run.members, "who sends while training is there while training"
            assert set(numbers(move.spans)) <= has[move.source]
            has[move.target] |= set(numbers(move.spans))
        for member, rank in zip(run.members, epoch.by_rank, strict=True):
            assert set(numbers(rank.arriving)) <= has[member]


@given(seed=st.integers(0, 1 << 30), method=st.sampled_from(WAYS))
def test_pinned_samples_are_trained_on_where_they_live(seed, method):
    plan, run = placed(random_problem(seed), method)
    for member, holding in enumerate(plan.before.holdings):
        pinned = numbers(holding.spans)[: holding.num_pinned]
        for epoch in run.epochs if pinned else ():
            assert set(pinned) <= set(numbers(epoch.by_rank[run.members.index(member)].own))


@given(seed=st.integers(0, 1 << 30), method=st.sampled_from(WAYS))
def test_it_ends_with_what_the_plan_says_and_is_the_same_when_read_again(seed, method):
    plan, run = placed(random_problem(seed), method)
    held = [num_samples(rank.own) for rank in run.epochs[-1].by_rank]
    assert held == [node.holds for node in plan.nodes if node.is_member]
    assert (run.first_step, run.epochs[0].from_epoch) == (7, 3)
    assert codec.loads(PlacedRun, codec.dumps(run)) == run


SLOW_AND_FAST = cluster(("slow", 900, 10, 1), ("fast", 100, 100, 100))


def test_who_drains_is_no_member_and_sends_all_before_training():
    asked = problem_of(SLOW_AND_FAST, demand(gradient_bytes=1e6), rates={})
    plan, run = placed(asked, "joint")
    assert run.nodes == ("fast",)
    assert run.members == (1,)
    assert run.moves == (SampleMove(source=0, target=1, spans=((0, 900),)),)
    assert run.epochs == (EpochSamples(from_epoch=3, by_rank=(RankSamples(own=((900, 1000), (0, 900))),)),)
    assert plan.moving == "before training"


def test_what_moves_while_training_is_last_in_its_epoch_and_own_in_the_next():
    asked = problem_of(SLOW_AND_FAST, demand(), rates={})
    plan, run = placed(asked, "overlap")
    assert plan.moving == "while training"
    first, then = (epoch.by_rank[1] for epoch in run.epochs[:2])
    assert first.own == ((900, 1000),)
    assert num_samples(first.arriving) == plan.works[0][1] - 100
    assert set(numbers(first.arriving)) <= set(numbers(then.own))
    assert run.moves[0] == SampleMove(source=0, target=1, spans=first.arriving, epoch=3)


def test_what_comes_from_several_at_once_arrives_mixed():
    asked = problem_of(
        cluster(("one", 640, 10, 1), ("two", 640, 10, 1), ("fast", 10, 1000, 100)), demand(epochs=1), rates={}
    )
    _, run = placed(asked, "overlap")
    arriving = numbers(run.epochs[0].by_rank[2].arriving)
    half = arriving[: len(arriving) // 2]
    from_one = sum(number < 640 for number in half)
    assert abs(from_one - len(half) / 2) <= len(half) / 16


def test_nodes_that_list_nothing_are_no_question_for_a_run():
    plan = place(problem_of(SLOW_AND_FAST, demand(), rates={}), "waterfill")
    with pytest.raises(InternalError, match="nodes list 0 samples, and the plan is of 1000"):
        placed_run(plan, (0, 1))


def test_who_trains_on_what_was_brought_has_it_or_is_sent_it():
    """Member 7 had the samples 4 and 5 once, so that nothing moves; then another epoch needs them there."""
    alone = (RankSamples(own=((0, 4),)), RankSamples(own=((4, 8),)))
    back = (RankSamples(own=((0, 6),)), RankSamples(own=((6, 8),)))
    epochs = (EpochSamples(from_epoch=1, by_rank=alone), EpochSamples(from_epoch=2, by_rank=back))
    run = PlacedRun(first_step=9, members=(7, 8), nodes=("a", "b"), epochs=epochs, moves=())
    lists = (((0, 4),), ((4, 8),))
    with pytest.raises(InternalError, match="nobody sends member 7 2 samples that it trains on from epoch 2 on"):
        check_supply(run, lists, ((4, 8),))
    check_supply(run, lists, ((6, 8),))
    sent = replace(run, moves=(SampleMove(source=8, target=7, spans=((4, 6),), epoch=2),))
    check_supply(sent, lists, ((4, 8),))
