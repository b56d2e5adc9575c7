"""Who was first: a rank's own failure before a death, a death before the echoes of others."""

import itertools
from typing import Any

import pytest

from nfold.core.members import Member
from nfold.errors import ClusterError, NonFiniteLoss, ProgramError, WorkerLost
from nfold.runtime.failures.first_cause import Postmortem
from nfold.runtime.failures.network_cuts import NetworkCut

KILLED = "was killed by signal 9 (SIGKILL)"


def words(text: str = "ValueError: boom", **message: Any) -> dict[str, Any]:
    given = {"kind": "ValueError", "doing": "build", "step": None, "is_echo": False, "traceback": f"trace of {text}"}
    return {"text": text, **given, **message}


def opened(world_size: int = 3) -> Postmortem:
    postmortem = Postmortem()
    postmortem.regroup([Member(number=rank, host=f"host-{rank}", pid=100 + rank) for rank in range(world_size)])
    return postmortem


def test_it_opens_with_the_first_bad_news_and_is_complete_with_the_last():
    postmortem = opened(2)
    assert not postmortem.open
    postmortem.left(1, KILLED)
    assert postmortem.open
    assert postmortem.take_first()
    assert not postmortem.take_first()
    assert not postmortem.complete
    postmortem.failed(0, words(is_echo=True))
    assert postmortem.complete


def test_a_rank_that_is_done_may_leave():
    postmortem = opened(2)
    postmortem.excuse((1,))
    postmortem.left(1, "exited with code 0")
    assert not postmortem.open
    postmortem.left(0, KILLED)
    assert postmortem.complete
    assert "other rank" not in str(postmortem.error()), "rank 1 was done before"


@pytest.mark.parametrize(
    ("news", "is_death"),
    [
        (["leaving"], True),
        (["leaving", "echo"], False),
        (["leaving", "death"], True),
        (["death", "leaving"], False),
        (["cause", "leaving"], False),
        (["echo"], False),
    ],
    ids=str,
)
def test_a_death_is_what_nobody_has_explained(news, is_death):
    postmortem = opened()
    for each in news:
        NEWS[each](postmortem)
    assert postmortem.is_death == is_death


NEWS = {
    "cause": lambda each: each.failed(1, words("ValueError: boom", step=4)),
    "death": lambda each: each.left(2, KILLED),
    "echo": lambda each: each.failed(0, words("rank 2 is lost", is_echo=True, step=4)),
    "leaving": lambda each: each.left(0, "exited with code 1"),
}


@pytest.mark.parametrize("order", list(itertools.permutations(["cause", "echo", "leaving"])), ids="-".join)
def test_a_ranks_own_failure_comes_before_all_echoes(order):
    postmortem = opened()
    for news in order:
        NEWS[news](postmortem)
    error = postmortem.error()
    assert type(error) is WorkerLost
    assert str(error) == (
        "rank 1 (on host-1, pid 101) failed at step 5: ValueError: boom. 2 other ranks stopped because of it."
    )


def test_a_link_that_is_too_slow_is_what_the_cluster_lacks():
    postmortem = opened(2)
    postmortem.failed(0, words("4096 bytes took longer than 10 s.", doing="probe", kind="ClusterError"))
    error = postmortem.error()
    assert type(error) is ClusterError
    assert str(error).startswith("rank 0 (on host-0, pid 100) failed while it probed the network: 4096 bytes took ")


@pytest.mark.parametrize("order", list(itertools.permutations(["death", "echo"])), ids="-".join)
def test_a_death_comes_before_all_echoes(order):
    postmortem = opened()
    for news in order:
        NEWS[news](postmortem)
    postmortem.left(0, "exited with code 1")
    error = postmortem.error()
    assert type(error) is WorkerLost
    assert str(error).startswith(
        f"rank 2 (on host-2, pid 102) {KILLED} at step 5. 2 other ranks stopped because of it."
    )
    assert "out of memory" in str(error), "the kernel kills with signal 9"


def test_who_is_killed_as_the_user_asked_lacks_no_memory():
    postmortem = opened()
    postmortem.sentenced((1,), "kill n-1@3s")
    assert not postmortem.open, "it is about to happen"
    postmortem.left(1, KILLED)
    assert str(postmortem.error()).endswith(
        '2 other ranks stopped because of it. That was asked for: --fault "kill n-1@3s".'
    )
    assert "memory" not in str(postmortem.error())


@pytest.mark.parametrize(("rank", "status", "fragment"), [(2, KILLED, "memory"), (1, "exited with code 1", "of it.")])
def test_a_fault_explains_the_ranks_that_it_kills_and_no_other_end(rank, status, fragment):
    postmortem = opened()
    postmortem.sentenced((1,), "kill n-1@3s")
    postmortem.left(rank, status)
    assert fragment in str(postmortem.error())
    assert "asked for" not in str(postmortem.error())


def test_the_first_of_two_causes_and_of_two_deaths_counts():
    postmortem = opened()
    postmortem.failed(2, words("one"))
    postmortem.failed(1, words("two"))
    assert "rank 2" in str(postmortem.error())
    postmortem = opened()
    postmortem.left(1, KILLED)
    postmortem.left(0, KILLED)
    assert "rank 1" in str(postmortem.error())


def test_echoes_alone_are_told_as_what_they_are():
    postmortem = opened(2)
    postmortem.failed(1, words("the connection to rank 0 broke", is_echo=True, step=0))
    postmortem.failed(0, words("the connection to rank 1 broke", is_echo=True, step=0))
    assert str(postmortem.error()) == (
        "rank 1 (on host-1, pid 101) lost its connection at step 1: the connection to rank 0 broke. "
        "1 other rank stopped because of it."
    )


def test_of_ranks_that_lost_each_other_the_fewest_are_given_up():
    postmortem = opened(4)
    for rank, peer in ((0, 2), (1, 2), (2, 0)):
        postmortem.failed(rank, words("the connection broke", is_echo=True, peer=peer))
    assert postmortem.dead == (2,)
    assert postmortem.status(2) == "lost its connection to ranks 0 and 1"
    postmortem.left(3, KILLED)
    assert postmortem.dead == (3,), "its end may be why the others lost each other"


@pytest.mark.parametrize("gone", [0, 1])
def test_of_two_that_lost_each_other_the_one_that_has_gone_is_given_up(gone):
    postmortem = opened(2)
    postmortem.failed(gone, words("the connection broke", is_echo=True, peer=1 - gone))
    postmortem.left(gone, "was lost with its host")
    postmortem.failed(1 - gone, words("the connection broke", is_echo=True, peer=gone))
    assert postmortem.dead == (gone,)


@pytest.mark.parametrize("silent", [0, 1])
def test_one_that_says_nothing_is_given_up_rather_than_the_one_that_has_lost_it(silent):
    postmortem = opened(2)
    postmortem.failed(1 - silent, words("the connection broke", is_echo=True, peer=silent))
    assert postmortem.dead == (silent,)


def test_who_lost_nobody_in_particular_is_not_given_up():
    postmortem = opened(2)
    postmortem.failed(0, words("no way out of here", is_echo=True, peer=None))
    assert postmortem.dead == ()


@pytest.mark.parametrize(("kind", "expected"), [("NonFiniteLoss", NonFiniteLoss), ("ProgramError", ProgramError)])
def test_our_errors_stay_what_they_are(kind, expected):
    postmortem = opened(1)
    postmortem.failed(0, words("text", kind=kind, step=1))
    assert type(postmortem.error()) is expected


def test_a_program_that_cannot_start_is_no_ranks_fault():
    postmortem = opened()
    postmortem.regroup([Member(number=rank, host="here", pid=100 + rank) for rank in range(3)])
    postmortem.failed(2, words("train_data() returned an empty dataset", kind="ProgramError"))
    assert str(postmortem.error()) == "train_data() returned an empty dataset."


def test_a_program_that_cannot_start_is_told_with_the_host_that_says_so():
    postmortem = opened()
    postmortem.failed(2, words("No module named 'timm'", kind="ProgramError"))
    assert str(postmortem.error()) == "No module named 'timm'. So says rank 2 (on host-2, pid 102)."


@pytest.mark.parametrize(
    ("order", "text"),
    [
        ("load", "loaded the program"),
        ("profile", "measured the program"),
        ("pace", "measured how fast all compute at once"),
        ("build", "built"),
        ("", "started"),
    ],
)
def test_a_death_before_training_is_placed_by_what_was_ordered(order, text):
    postmortem = opened(1)
    postmortem.ordered(order)
    postmortem.left(0, "exited with code 1")
    assert text in str(postmortem.error())
    assert "memory" not in str(postmortem.error())


def test_the_log_gets_every_traceback():
    postmortem = opened(2)
    postmortem.failed(1, words("a"))
    postmortem.failed(0, words("b", is_echo=True))
    assert postmortem.details() == "rank 1:\ntrace of a\nrank 0:\ntrace of b"


def test_who_was_to_be_killed_is_known_after_others_are_lost():
    postmortem = opened(4)
    postmortem.sentenced((3,), "kill n-3@4s")
    postmortem.regroup([Member(number=number, host=f"host-{number}", pid=100 + number) for number in (1, 3)])
    postmortem.ordered("recall")
    postmortem.left(1, KILLED)
    assert str(postmortem.error()).startswith(
        "rank 1 (on host-3, pid 103) was killed by signal 9 (SIGKILL) while hosts came and went. 1 other rank stopped"
    )
    assert str(postmortem.error()).endswith('That was asked for: --fault "kill n-3@4s".')


@pytest.mark.parametrize(
    ("goes_on", "then"), [(True, "the run goes on without it"), (False, "the job is given up")], ids=str
)
def test_what_becomes_of_a_run_when_a_rank_stays_silent_or_cut_off_is_told(goes_on, then):
    postmortem = opened()
    cut = NetworkCut(rank=1, others=(0, 2), silent_s=10.0)
    assert postmortem.tell_silence(1, 10.0, 60.0, goes_on=goes_on).endswith(f" After 60 s {then}.")
    assert postmortem.tell_cut(cut, 60.0, goes_on=goes_on).endswith(f" After 60 s {then}.")
