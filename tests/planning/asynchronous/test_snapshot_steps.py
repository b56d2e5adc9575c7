"""After which steps the ranks of an asynchronous run take snapshots."""

from hypothesis import given
from hypothesis import strategies as st

from nfold.planning.asynchronous.snapshot_steps import SnapshotSteps


def test_snapshots_are_due_at_multiples_and_not_after_the_last_step():
    steps = SnapshotSteps(4, 5, 16)
    assert steps.within(5, 99) == (8, 12)
    assert [steps.next_after(step) for step in (5, 8, 11, 12)] == [8, 12, 12, None]
    assert SnapshotSteps(0, 0, 99).next_after(0) is None


def test_another_number_holds_for_steps_that_nobody_has_begun():
    steps = SnapshotSteps(4, 0, 99)
    steps.change(3, after=9)
    steps.change(5, after=9)
    assert steps.within(0, 20) == (4, 8, 10, 15, 20)


@given(
    first=st.integers(0, 9),
    changes=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), min_size=1, max_size=4),
    last=st.integers(1, 60),
)
def test_the_steps_are_those_that_each_number_means(first, changes, last):
    steps, after, holds = SnapshotSteps(changes[0][0], first, last), first, []
    holds.append((first, changes[0][0]))
    for every, further in changes[1:]:
        after += further
        steps.change(every, after)
        holds.append((after, every))
    expected = []
    for step in range(first + 1, last):
        every = [every for since, every in holds if since < step][-1]
        expected += [step] if every and step % every == 0 else []
    assert list(steps.within(first, last)) == expected
    for step in range(first, last):
        assert steps.next_after(step) == next((due for due in expected if due > step), None)
