"""What a manager knows of a lost host stands in the line that ends the run."""

from types import SimpleNamespace

import pytest

from nfold.errors import ClusterError, WorkerLost
from nfold.hosts.lost_hosts import LOOKS, add_reasons
from nfold.hosts.manager import PlaceState

PREEMPTED = "ended as PREEMPTED: a job that goes before it took its node"


class Manager:
    """Tells one thing after another, and the last one for ever."""

    title = "Slurm partition short"

    def __init__(self, *told, lines=()):
        self.told, self.lines = list(told), list(lines)

    def states(self):
        stage, reason = self.told[0] if len(self.told) == 1 else self.told.pop(0)
        if isinstance(reason, ClusterError):
            raise reason
        others = [PlaceState(place=place, name="", stage="ended", reason="gone") for place in (2, 3, 4)]
        return [
            PlaceState(place=0, name="node0", stage="running"),
            PlaceState(place=1, name="node1", stage=stage, reason=reason),
            *others,
        ]

    def last_lines(self, place):
        return self.lines if place == 1 else []


@pytest.fixture
def waited():
    return []


@pytest.fixture
def told(waited):
    def tell(manager, *lost):
        error = WorkerLost("rank 1 was lost.")
        add_reasons(
            error, manager, [SimpleNamespace(place=place, name=f"node{place}") for place in lost], waited.append
        )
        return str(error), getattr(error, "__notes__", [])

    return tell


def test_a_manager_is_asked_until_it_knows(told, waited):
    manager = Manager(("running", ""), ("ended", ""), ("ended", PREEMPTED), lines=["bye"])

    line, notes = told(manager, 1)

    assert line == f"rank 1 was lost. Slurm partition short: node1 {PREEMPTED}."
    assert notes == ["The last lines from there:\n  bye"]
    assert len(waited) == 2


def test_a_manager_that_never_knows_is_given_up(told, waited):
    assert told(Manager(("running", "")), 1) == ("rank 1 was lost.", [])
    assert len(waited) == LOOKS - 1


@pytest.mark.parametrize("state", [("waiting", ""), ("ended", "exited with code 1")])
def test_nothing_is_said_of_what_is_known(told, waited, state):
    assert told(Manager(state), 1) == ("rank 1 was lost.", [])
    assert waited == []


def test_of_many_the_first_ones_are_told(told):
    line, _ = told(Manager(("ended", PREEMPTED)), 4, 3, 1, 2)

    assert line.endswith(f": node4 gone; node3 gone; node1 {PREEMPTED}.")


def test_nobody_is_asked_when_no_host_is_lost(told):
    assert told(Manager(("ended", ClusterError("must not be asked")))) == ("rank 1 was lost.", [])


def test_a_manager_that_cannot_be_asked_hides_nothing(told):
    refusal = ("ended", ClusterError("squeue has not answered"))

    assert told(Manager(refusal), 1)[0].startswith(
        "rank 1 was lost. Slurm partition short: it cannot be asked why, squ"
    )
