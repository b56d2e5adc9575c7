"""Who gives which elements of the file."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfold.errors import InternalError
from nfold.runtime.checkpoint.file_layout import REST, Offered, lay_out
from nfold.runtime.checkpoint.state_file import StateEntry

A = StateEntry(name="a", dtype="F32", shape=(10,))
B = StateEntry(name="b", dtype="I64", shape=(2, 2))


def rows(stretches):
    return [(each.entry.name, each.rank, each.index, each.start, each.stop) for each in stretches]


def test_parts_of_several_ranks_and_what_nobody_gives():
    offered = [[Offered(A, 6, 10)], [Offered(A, 0, 3)]]
    entries, stretches = lay_out(offered, [Offered(B, 0, 4), Offered(A, 0, 10)])
    assert entries == [B, A], "the widest elements first"
    assert rows(stretches) == [("b", REST, 0, 0, 4), ("a", 1, 0, 0, 3), ("a", REST, 1, 3, 6), ("a", 0, 0, 6, 10)]


def test_of_two_that_give_the_same_the_later_counts():
    _, stretches = lay_out([[Offered(A, 0, 10)], [Offered(A, 0, 10)]], [])
    assert rows(stretches) == [("a", 1, 0, 0, 10)]


def test_what_cannot_be_is_refused():
    with pytest.raises(InternalError, match="element 4 of a is given by two ranks"):
        lay_out([[Offered(A, 0, 5)], [Offered(A, 4, 10)]], [])
    with pytest.raises(InternalError, match="no rank holds elements 5 to 10 of a"):
        lay_out([[Offered(A, 0, 5)]], [])
    with pytest.raises(InternalError, match="ranks hold"):
        lay_out([[Offered(A, 0, 5)], [Offered(StateEntry(name="a", dtype="F64", shape=(10,)), 5, 10)]], [])


@given(st.sets(st.integers(1, 9)), st.lists(st.integers(0, 3), min_size=10, max_size=10), st.sets(st.integers(0, 9)))
def test_every_element_comes_from_one_place(borders, owners, missing):
    edges = [0, *sorted(borders), 10]
    offered = [[] for _ in range(4)]
    for index, (start, stop) in enumerate(itertools.pairwise(edges)):
        if index not in missing:
            offered[owners[index]].append(Offered(A, start, stop))
    _, stretches = lay_out(offered, [Offered(A, 0, 10)])
    assert [element for each in stretches for element in range(each.start, each.stop)] == list(range(10))
    for each in stretches:
        if each.rank != REST:
            part = offered[each.rank][each.index]
            assert (part.start, part.stop, each.offset) == (each.start, each.stop, each.start)
