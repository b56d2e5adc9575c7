"""The machine of members: whatever comes and goes, in whatever order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfold.core.members import Member
from nfold.errors import InternalError
from nfold.runtime.coordinator.members import membership as ms
from nfold.runtime.coordinator.members.membership import Decision, Membership

EVENTS = (ms.MemberPrepared, ms.MemberAnnounced, ms.MemberFinished, ms.MemberFailed, ms.MemberLeft)


def came(number: int) -> ms.MemberCame:
    return ms.MemberCame(Member(number=number, host="here", pid=100 + number))


def prepared(number: int) -> ms.MemberPrepared:
    return ms.MemberPrepared(number, ("here", number))


def founded(count: int = 2) -> Membership:
    """Ranks 0 .. in the first generation."""
    members = Membership()
    for number in range(count):
        members.take(came(number))
    members.enlist(tuple(range(count)))
    for number in range(count):
        members.take(prepared(number))
    members.begin(count)
    return members


def test_the_run_ends_where_fewer_than_the_least_would_stay():
    members = Membership(least=2)
    for number in range(3):
        members.take(came(number))
    members.enlist((0, 1, 2))
    for number in range(3):
        members.take(prepared(number))
    members.begin(3)
    assert members.take(ms.MemberAnnounced(0)) is Decision.SHRINK
    assert members.take(ms.MemberAnnounced(2)) is Decision.STOP
    members.take(came(3))
    assert members.take(prepared(3)) is Decision.SHRINK


def test_who_has_finished_has_no_part_in_what_follows_a_loss():
    """Two are to leave; one has, and then a third is lost."""
    members = founded(4)
    members.take(ms.MemberFinished(1))
    members.take(ms.MemberLeft(1))
    members.take(ms.MemberLeft(3))
    assert members.departed == (3,)
    assert members.can_lose({3})
    members.lose({3})
    members.enlist((0, 2))
    assert members.begin(2).members == (0, 2)


def test_the_run_ends_where_somebody_is_to_leave_without_whom_it_cannot_go_on():
    members = founded(3)
    members.need(1, "it holds what nobody else has")
    assert members.take(ms.MemberAnnounced(0)) is Decision.SHRINK
    assert members.take(ms.MemberAnnounced(1)) is Decision.STOP
    assert (members.needed(1), members.needed(0)) == ("it holds what nobody else has", "")


def turn(members: Membership) -> None:
    """Let the next generation begin, as the coordinator does: who leaves finishes first."""
    for number in members.leavers:
        members.take(ms.MemberFinished(number))
    members.enlist(members.next_ranks)
    members.begin(len(members.ranks))


@pytest.mark.parametrize(
    ("events", "decision", "next_ranks"),
    [
        ([], Decision.GO_ON, (0, 1)),
        ([came(2)], Decision.GO_ON, (0, 1)),
        ([came(2), prepared(2)], Decision.GROW, (0, 1, 2)),
        ([came(2), prepared(2), ms.MemberLeft(2)], Decision.GO_ON, (0, 1)),
        ([came(2), ms.MemberFailed(2), ms.MemberLeft(2)], Decision.GO_ON, (0, 1)),
        ([came(2), prepared(2), ms.MemberAnnounced(2)], Decision.GO_ON, (0, 1)),
        ([ms.MemberAnnounced(0)], Decision.SHRINK, (1,)),
        ([ms.MemberAnnounced(0), came(2), prepared(2)], Decision.SHRINK, (1, 2)),
        ([ms.MemberAnnounced(0), ms.MemberAnnounced(1)], Decision.STOP, ()),
        ([ms.MemberAnnounced(0), ms.MemberAnnounced(1), came(2), prepared(2)], Decision.SHRINK, (2,)),
        ([ms.MemberLeft(1)], Decision.FAIL, (0,)),
        ([ms.MemberFailed(1)], Decision.FAIL, (0,)),
        ([ms.MemberFinished(1), ms.MemberLeft(1)], Decision.GO_ON, (0,)),
        ([ms.MemberFinished(0), ms.MemberFinished(1), came(2), prepared(2)], Decision.GO_ON, (2,)),
    ],
    ids=str,
)
def test_what_follows(events, decision, next_ranks):
    members = founded()
    for event in events:
        members.take(event)
    assert (members.decision, members.next_ranks) == (decision, next_ranks)


def test_nothing_follows_before_the_first_generation():
    """Ranks that get ready are all needed, and nobody else is yet."""
    members = Membership()
    members.take(came(0))
    members.enlist((0,))
    assert members.take(ms.MemberAnnounced(0)) is Decision.GO_ON
    members.take(prepared(0))
    members.begin(1)
    assert members.decision is Decision.STOP


def test_once_nobody_can_come_or_go_all_go_on():
    members = founded()
    members.take(ms.MemberAnnounced(0))
    members.fix("no checkpoint")
    assert members.decision is Decision.GO_ON
    assert members.take(ms.MemberLeft(1)) is Decision.FAIL


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda members: members.take(came(1)), "member 1 came twice"),
        (lambda members: members.take(ms.MemberLeft(7)), "member 7 is not known"),
        (lambda members: members.enlist((0, 1, 7)), "member 7 is not known"),
        (lambda members: members.enlist((0,)), "member 1 has a rank and has not finished"),
        (lambda members: (members.take(ms.MemberLeft(1)), members.enlist((0, 1))), "member 1 has left"),
        (lambda members: (members.take(came(2)), members.enlist((0, 1, 2)), members.begin(3)), "2 is not prepared"),
    ],
)
def test_what_cannot_be_is_refused(wrong, message):
    with pytest.raises(InternalError, match=message):
        wrong(founded())


@given(st.lists(st.one_of(st.just("came"), st.just("turn"), st.tuples(st.sampled_from(EVENTS), st.integers(0, 9)))))
def test_whatever_happens_ranks_belong_to_members_that_are_prepared_and_there(happenings):
    members, came_so_far, listening, unfit, generations = founded(), 2, {0, 1}, set(), []
    for happening in happenings:
        if happening == "came":
            members.take(came(came_so_far))
            came_so_far += 1
        elif happening == "turn":
            if members.decision in (Decision.GROW, Decision.SHRINK):
                turn(members)
                generations.append(members.generation)
                assert set(generations[-1].members) <= listening - unfit
        elif happening[1] < came_so_far:
            kind, number = happening
            members.take(prepared(number) if kind is ms.MemberPrepared else kind(number))
            listening |= {number} if kind is ms.MemberPrepared else set()
            unfit |= {number} if kind is not ms.MemberPrepared else set()
        members.validate()
        assert unfit.isdisjoint(members.newcomers)
    numbers = [each.number for each in generations]
    assert numbers == list(range(1, 1 + len(numbers))), "no two generations of one number"


def test_members_that_a_plan_has_no_use_for_are_not_missed():
    members = Membership(least=3, waits=True)
    for number in range(3):
        members.take(came(number))
    members.enlist((0, 1, 2))
    assert members.num_lacking == 0
    members.take(ms.MemberFinished(2))
    members.spare(1)
    members.enlist((0, 1))
    assert members.num_lacking == 0
    members.lose({1})
    assert members.num_lacking == 1
