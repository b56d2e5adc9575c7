"""What nodes without samples are lent."""

from nfold.core.residency import NodeData, SampleMove
from nfold.runtime.coordinator.placing.loans import LENT, lendable, loans_of, pinned_of
from nfold.runtime.coordinator.placing.question import left_bytes, safe_bytes


def members(*held):
    return [
        NodeData(node=f"n{number}", num_samples=count, num_pinned=pinned) for number, (count, pinned) in enumerate(held)
    ]


def test_what_is_pinned_is_never_lent():
    assert lendable(members((60, 58), (40, 10)), (0, 1)) == ((70, 70 + LENT),)
    assert lendable(members((60, 58), (40, 40)), (0, 1)) == ((58, 60),)
    assert lendable(members((60, 60), (40, 40)), (0, 1)) == ()
    assert pinned_of(members((60, 58), (40, 0), (5, 5))) == [((0, 58),), (), ((100, 105),)]


def test_only_nodes_that_are_there_lend():
    assert lendable(members((60, 0), (40, 39)), (1,)) == ((99, 100),)


def test_who_was_given_samples_looks_at_these_and_not_at_others():
    loans = loans_of(members((60, 0), (0, 0), (0, 0)), (0, 1, 2), [((0, 40),), ((40, 60),), ()])
    assert loans.examples == ((), ((40, 40 + LENT),), ((0, LENT),))
    assert loans.moves == tuple(SampleMove(source=0, target=target, spans=loans.examples[target]) for target in (1, 2))


def test_storage_is_planned_with_room_for_samples_that_are_larger_than_most():
    """3 deviations of what 100 samples have together, and 8 that were lent."""
    assert safe_bytes(10_000, (), 100.0, 10.0) == 10_000 - 3 * 10 * 10 - LENT * 100
    assert safe_bytes(None, (), 100.0, 10.0) is None
    assert safe_bytes(10_000, ((0, 99),), 100.0, 10.0) == 9_900, "what lives there stays"


def test_samples_that_were_given_away_keep_their_room_on_the_node_that_they_live_on():
    assert left_bytes(10_000, (0, 50), ((0, 20), (60, 70)), 100.0) == 7_000
    assert left_bytes(2_000, (0, 50), (), 100.0) == 0
    assert left_bytes(None, (0, 50), (), 100.0) is None
