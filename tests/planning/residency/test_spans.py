"""Lists of samples by their numbers."""

from hypothesis import given
from hypothesis import strategies as st

from nfold.planning.residency.model.spans import common, cut_last, joined, num_samples, union, without


@st.composite
def disjoint(draw):
    """Spans that share no sample, in any order."""
    borders = sorted(draw(st.sets(st.integers(0, 60), max_size=12)))
    return tuple(draw(st.permutations(list(zip(borders[::2], borders[1::2], strict=False)))))


def numbers(spans):
    return [number for first, end in spans for number in range(first, end)]


@given(spans=disjoint(), others=disjoint())
def test_what_is_common_and_what_is_not_are_all_in_their_order(spans, others):
    there = set(numbers(others))
    assert numbers(common(spans, others)) == [number for number in numbers(spans) if number in there]
    assert numbers(without(spans, others)) == [number for number in numbers(spans) if number not in there]


@given(spans=disjoint(), count=st.integers(0, 60))
def test_the_last_are_cut_off(spans, count):
    kept, taken = cut_last(spans, count)
    assert numbers((*kept, *taken)) == numbers(spans)
    assert num_samples(taken) == min(count, num_samples(spans))


@given(spans=disjoint())
def test_joined_spans_hold_the_same_in_the_same_order(spans):
    assert numbers(joined(spans)) == numbers(spans)


@given(spans=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30)).map(lambda each: (each[0], sum(each)))))
def test_a_union_holds_each_sample_once(spans):
    assert numbers(union(spans)) == sorted(set(numbers(spans)))


def test_spans_that_follow_each_other_become_one():
    assert joined([(0, 3), (3, 5), (9, 10), (5, 9)]) == ((0, 5), (9, 10), (5, 9))
