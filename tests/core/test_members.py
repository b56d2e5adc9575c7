"""Who dials whom, where an address translation stands before some."""

from nfold.core.members import Member, dial_order, find_apart, tell_apart


def member(number, host, seen=""):
    return Member(number=number, host=f"pi-{number}", pid=1, address=(host, 5000), seen=seen)


OPEN = member(2, "10.0.0.2", "10.0.0.2")
UNKNOWN = member(3, "10.0.0.3")
HIDDEN = member(0, "192.168.1.5", "10.0.0.9")
BESIDE = member(1, "192.168.1.6", "10.0.0.9")
ELSEWHERE = member(4, "192.168.1.5", "10.0.0.8")


def test_who_is_hidden_dials_all_that_are_not():
    assert dial_order([HIDDEN, BESIDE, OPEN, UNKNOWN]) == [OPEN, UNKNOWN, HIDDEN, BESIDE]


def test_who_does_not_listen_is_not_hidden():
    assert not Member(number=0, host="pi-0", pid=1, seen="10.0.0.9").is_hidden


def test_two_that_are_hidden_in_different_places_do_not_meet():
    assert find_apart([HIDDEN, BESIDE, OPEN]) is None
    assert find_apart([OPEN, HIDDEN, BESIDE, ELSEWHERE]) == (HIDDEN, ELSEWHERE)
    told = tell_apart(HIDDEN, ELSEWHERE)
    assert told.startswith("pi-0 (192.168.1.5, seen as 10.0.0.9) and pi-4 (192.168.1.5, seen as 10.0.0.8) are behind")


def test_who_is_dialled_by_nobody_is_not_hidden():
    in_mpi = [member(number, "", seen) for number, seen in enumerate(("10.0.0.8", "10.0.0.9"))]
    assert find_apart(in_mpi) is None
    assert dial_order(in_mpi) == in_mpi
