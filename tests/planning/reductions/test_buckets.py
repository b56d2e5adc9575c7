"""Buckets: every trained parameter once, last layers first, cut between parameters where an optimizer wants that."""

from dataclasses import replace

import pytest
from grids import chain, grids, model, parameter, place
from hypothesis import given, settings
from hypothesis import strategies as st

from nfold.planning.reductions.buckets import backward_order, bounds, buckets_of, fill_buckets, sparse_notes
from nfold.planning.reductions.shares import cut_shares, equal_shares


def names(buckets):
    return [bucket.parameters for bucket in buckets]


def test_last_layers_come_first():
    assert names(fill_buckets(chain(1, 1, 1), (0, 1), "ring", 8)) == [("c.weight", "b.weight"), ("a.weight",)]


def test_a_tied_weight_counts_by_its_first_user():
    weights = (parameter("tied", 1, "A", "B"), parameter("b", 1, "B"))
    graph = model({"A": ("input",), "B": ("a",), "Loss": ("b", "target")}, weights)
    assert [each.name for each in backward_order(graph)] == ["b", "tied"]


def test_frozen_weights_and_those_without_gradient_are_in_no_bucket():
    weights = (
        parameter("frozen", 1, "A", trainable=False),
        replace(parameter("unused", 1, "A"), has_gradient=False),
        parameter("w", 1, "A"),
    )
    graph = model({"A": ("input",), "Loss": ("a", "target")}, weights)
    assert names(fill_buckets(graph, (0,), "local", 1 << 20)) == [("w",)]


def test_types_do_not_mix_and_a_large_parameter_stands_alone():
    weights = (
        parameter("a", 2, "A"),
        parameter("b", 100, "B"),
        parameter("c", 1, "C", dtype="float64"),
        parameter("d", 1, "D"),
    )
    graph = model({"A": ("input",), "B": ("a",), "C": ("b",), "D": ("c", "target")}, weights)
    buckets = fill_buckets(graph, (0, 1), "ring", 32)
    assert names(buckets) == [("d",), ("c",), ("b",), ("a",)]
    assert [bucket.num_bytes for bucket in buckets] == [4, 8, 400, 8]
    assert [bucket.piece_elements * bucket.item_bytes for bucket in buckets] == [1 << 20] * 4


def test_a_parameter_of_one_owner_is_local_whatever_the_route():
    placement = place({"A": (0, 1), "B": (1, 1), "Loss": (1, 1)}, 2)
    found = {each.parameters: (each.route, each.members) for each in buckets_of(chain(1, 1), placement, "server", 99)}
    assert found == {("a.weight",): ("server", (0, 1)), ("b.weight",): ("local", (1,))}


@settings(max_examples=20, deadline=None)
@given(grids())
def test_every_trained_parameter_lies_in_one_bucket_of_all_its_owners(grid):
    graph, placement, reductions = grid
    inside = [name for reduction in reductions for name in reduction.parameters]
    assert sorted(inside) == sorted(each.name for each in graph.trained)
    assert len({reduction.name for reduction in reductions}) == len(reductions)
    parameters = {each.name: each for each in graph.parameters}
    for reduction in reductions:
        own = [parameters[name] for name in reduction.parameters]
        assert reduction.num_elements == sum(each.num_elements for each in own) == bounds(reduction, graph)[-1]
        assert {each.dtype for each in own} == {reduction.dtype}
        assert all(placement.ranks_of(each.users) == reduction.members for each in own)


@given(st.integers(0, 100), st.integers(1, 9))
def test_equal_shares_cover_a_bucket_and_differ_by_one_element_at_most(num_elements, num_ranks):
    shares = equal_shares(num_elements, tuple(range(num_ranks)))
    sizes = [share.stop - share.start for share in shares]
    assert [share.start for share in shares] == [0, *(share.stop for share in shares[:-1])]
    assert sum(sizes) == num_elements
    assert max(sizes) - min(sizes) <= 1


WEIGHTS = st.lists(st.sampled_from([0.0, 0.1, 1.0, 1.0, 7.5]), min_size=1, max_size=6).filter(any)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), WEIGHTS, st.integers(1, 9), st.booleans())
def test_shares_cover_a_bucket_once_and_none_is_empty(sizes, weights, rounds, whole):
    graph = chain(*sizes)
    (bucket,) = fill_buckets(graph, (0,), "server", 1 << 30)
    borders = bounds(bucket, graph) if whole else ()
    shares = cut_shares(bucket, dict(enumerate(weights)), rounds, borders)
    ends = [0, *(share.stop for share in shares)]
    assert [share.start for share in shares] == ends[:-1]
    assert ends[-1] == bucket.num_elements
    assert all(share.stop > share.start for share in shares)
    assert all(weights[share.rank] > 0 for share in shares)
    if whole:
        assert set(ends) <= set(borders), "no parameter is cut"
    else:
        for rank, weight in enumerate(weights):
            own = sum(share.stop - share.start for share in shares if share.rank == rank)
            assert abs(own - bucket.num_elements * weight / sum(weights)) <= rounds, "rounding, once in each round"


@pytest.mark.parametrize(("sizes", "cuts"), [((4, 4, 4, 4), [0, 8, 16]), ((2, 14), [0, 14, 16]), ((16,), [0, 16])])
def test_whole_parameter_shares_by_hand(sizes, cuts):
    graph = chain(*sizes)
    (bucket,) = fill_buckets(graph, (0, 1), "server", 1 << 30)
    shares = cut_shares(bucket, {0: 1.0, 1: 1.0}, borders=bounds(bucket, graph))
    assert [0, *(share.stop for share in shares)] == cuts


def test_each_round_has_a_share_of_every_rank():
    (bucket,) = fill_buckets(chain(12), (0, 1), "server", 1 << 30)
    shares = cut_shares(bucket, {0: 1.0, 1: 2.0, 2: 0.0}, rounds=2)
    assert [(share.rank, share.start, share.stop) for share in shares] == [(0, 0, 2), (1, 2, 6), (0, 6, 8), (1, 8, 12)]


def test_sparse_gradients_that_travel_as_dense_are_told_with_their_size():
    graph = chain(1 << 18, 1 << 19)
    tables = tuple(replace(each, sparse_dims=1) for each in graph.parameters)
    one, both = replace(graph, parameters=(tables[0], graph.parameters[1])), replace(graph, parameters=tables)
    sent, kept = (
        fill_buckets(graph, members, route, 1 << 30) for members, route in (((0, 1), "ring"), ((0,), "local"))
    )
    (told,) = sparse_notes(one, sent)
    assert told.startswith(f"the gradient of {tables[0].name} is sparse, and summed over ranks as dense: ")
    assert f"{tables[0].num_bytes / 2**20:.3g} MiB in each step" in told
    (told,) = sparse_notes(both, sent)
    assert told.startswith(f"the gradients of {tables[0].name} and 1 more are sparse")
    assert sparse_notes(both, kept) == sparse_notes(graph, sent) == ()


@given(st.lists(st.integers(1, 70), min_size=1, max_size=9))
def test_each_parameter_begins_where_its_numbers_can_be_read_in_pairs_or_fours(sizes):
    weights = tuple(parameter(f"w{index}", size, "A") for index, size in enumerate(sizes))
    graph = model({"A": ("input",), "Loss": ("a", "target")}, weights)
    (bucket,) = fill_buckets(graph, (0, 1), "server", 1 << 20)
    begins = dict(zip(bucket.parameters, bounds(bucket, graph), strict=False))
    elements = {each.name: each.num_elements for each in weights}
    assert all(begins[name] % width == 0 for name in begins for width in (2, 4) if elements[name] % width == 0)
    assert bucket.num_elements == sum(sizes)
