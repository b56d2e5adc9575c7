"""Which elements of a state are there, and who reads which of them from whom."""

import itertools
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from nfold.runtime.checkpoint.state_file import StateEntry
from nfold.runtime.coordinator.states.holdings import Holding, share_out
from nfold.runtime.coordinator.states.sources import Donors, held_alone

HEADER_BYTES = 100


def held(name: str, size: int, start: int, stop: int, member: int, index: int, *, is_rest: bool = False) -> Holding:
    entry = StateEntry(name=name, dtype="F32", shape=(size,))
    return Holding(entry, start, stop, member, member, index, is_rest)


@st.composite
def states(draw: st.DrawFn) -> list[Holding]:
    """Tensors that are cut anywhere, each piece at one to four members; some have a whole copy that counts for less."""
    found: list[Holding] = []
    for number in range(draw(st.integers(1, 3))):
        size = draw(st.integers(1, 12))
        cuts = sorted({0, size, *draw(st.lists(st.integers(0, size), max_size=3))})
        for start, stop in itertools.pairwise(cuts):
            for member in draw(st.sets(st.integers(0, 3), min_size=1)):
                found.append(held(f"t{number}", size, start, stop, member, len(found)))
        for member in draw(st.sets(st.integers(0, 3))):
            found.append(held(f"t{number}", size, 0, size, member, len(found), is_rest=True))
    return found


@given(states(), st.sets(st.integers(0, 3)))
def test_what_is_left_is_whole_exactly_where_each_element_is_and_each_is_read_once(whole, left):
    here = [each for each in whole if each.member in left]
    given_elements = {(e.entry.name, i) for e in whole if not e.is_rest for i in range(e.start, e.stop)}
    there = {(e.entry.name, i) for e in here if not e.is_rest for i in range(e.start, e.stop)}
    shared = share_out(whole, here)
    assert (shared is not None) == (given_elements == there), "here each element was given by somebody"
    if shared is None:
        return
    donors = Donors(left)
    for reader in range(4):
        position, read = HEADER_BYTES, Counter()
        for source in donors.sources(reader, shared, HEADER_BYTES):
            assert source.begin == position, "in the order of the file, without a gap"
            position, held_by = source.end, source.holder
            first = held_by.start + source.start
            elements = range(first, first + (source.end - source.begin) // 4)
            assert held_by.start <= elements.start
            assert elements.stop <= held_by.stop
            assert not held_by.is_rest
            read.update((held_by.entry.name, i) for i in elements)
            own = [e for e in here if e.member == reader and e.entry == held_by.entry and not e.is_rest]
            has_it = any(e.start <= elements.start and elements.stop <= e.stop for e in own)
            assert has_it == (held_by.member == reader), "who has it reads it from nobody else"
        assert read == Counter(given_elements)


@given(states(), st.sets(st.integers(0, 3), max_size=3))
def test_what_leavers_give_first_is_all_that_the_others_lack(whole, leaving):
    shared = share_out(whole, whole)
    assert shared is not None
    given_away = held_alone(shared, leaving)
    assert all(each.member in leaving for each in given_away)
    assert share_out(whole, [*(each for each in whole if each.member not in leaving), *given_away]) is not None


def test_what_nobody_gives_is_read_from_any_copy_and_what_somebody_gave_never_is():
    whole = [held("a", 4, 0, 2, 0, 0), held("a", 4, 0, 4, 1, 0, is_rest=True), held("a", 4, 0, 4, 0, 1, is_rest=True)]
    shared = share_out(whole, whole)
    assert shared is not None
    assert [(each.start, each.stop, len(each.holders)) for each in shared] == [(0, 2, 1), (2, 4, 2)]
    assert share_out(whole, [each for each in whole if each.member == 1]) is None, "its first half is as it was once"


def test_what_a_newcomer_reads_is_spread_over_all_who_have_it():
    size = 8 << 20
    whole = [held("a", size, 0, size, member, 0) for member in range(4)]
    shared = share_out(whole, whole)
    assert shared is not None
    read = Donors(range(5)).sources(4, shared, HEADER_BYTES)
    assert Counter(source.holder.member for source in read) == {0: 2, 1: 2, 2: 2, 3: 2}
