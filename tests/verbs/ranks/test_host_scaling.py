"""What another terminal asks of the hosts of a run."""

from types import SimpleNamespace
from typing import Any

import pytest

from nfold.core.options.host_range import HostRange
from nfold.errors import ClusterError
from nfold.hosts.host_agent import RETURNED
from nfold.hosts.manager import PlaceState
from nfold.verbs.ranks.host_scaling import Scaling
from nfold.verbs.ranks.replacing import MOST_IN_A_ROW, Replacing


class Pool:
    """Hosts a and b are there."""

    def __init__(self) -> None:
        self.agents, self.left = [SimpleNamespace(name=name) for name in "ab"], []

    def here(self) -> list[Any]:
        return self.agents

    def places_come(self) -> frozenset[int]:
        return frozenset({0, 1})

    def call_back(self, agent: Any, why: str) -> None:
        self.left.append(agent.name)


class Manager:
    """One place of three waits in a queue."""

    title = "Slurm"

    def __init__(self, refuses: bool = False, replaces: bool = True, release_fails: bool = False) -> None:
        self.asked, self.released, self._refuses, self.replaces = [], [], refuses, replaces
        self._release_fails = release_fails

    def states(self) -> list[PlaceState]:
        stages = ("starting", "running", "waiting")
        return [PlaceState(place=place, name="", stage=stage) for place, stage in enumerate(stages)]

    def start(self, call: Any, count: int) -> None:
        if self._refuses:
            raise ClusterError("no more than three")
        self.asked.append(count)

    def release(self, place: int) -> None:
        if self._release_fails:
            raise ClusterError("it does not answer")
        self.released.append(next(state.place for state in self.states() if state.place == place))


@pytest.mark.parametrize(
    ("asked", "answer", "more", "left", "released"),
    [
        ("3", "there are 3 already", [], [], []),
        ("+2", "2 more hosts asked for; each takes part when it is there", [2], [], []),
        ("+3", "refused: 6 hosts would be outside of --nodes 1:5, which allows 1 to 5; there are 3", [], [], []),
        ("-1", "1 place given back that had no host yet", [], [], [2]),
        ("1", "b to leave after the step under way; 1 place given back that had no host yet", [], ["b"], [2]),
        ("-3", "refused: 0 hosts would be outside of --nodes 1:5, which allows 1 to 5; there are 3", [], [], []),
    ],
)
def test_hosts_are_asked_for_and_given_back(asked, answer, more, left, released):
    pool, manager = Pool(), Manager()
    assert Scaling(HostRange(1, 5), pool, manager, None, by_hand=False).answer(asked) == answer
    assert (manager.asked, pool.left, manager.released) == (more, left, released)


def test_a_manager_that_refuses_is_quoted():
    assert Scaling(HostRange(1, 5), Pool(), Manager(True), None, by_hand=False).answer("+1") == (
        "refused: no more than three"
    )


def test_nobody_can_be_asked_for_hosts_that_join_by_hand():
    scaling = Scaling(HostRange(1, 5), Pool(), Manager(), None, by_hand=True)
    assert scaling.answer("3") == "refused: hosts join by hand, so 1 more host must be told to: nfold join, as it says"
    assert scaling.answer("-1") == "b to leave after the step under way"


TAKEN = SimpleNamespace(name="c", place=1, is_placed=True)


@pytest.mark.parametrize(("place", "released"), [(1, [1]), (RETURNED + 1, [])], ids=["its own", "an earlier command's"])
def test_another_host_is_asked_for_in_place_of_one_that_was_taken_away(place, released):
    manager, agent = Manager(), SimpleNamespace(name="c", place=place, is_placed=True)
    told = Scaling(HostRange(1, 5), Pool(), manager, None, by_hand=False).replace(agent)
    assert told == "another host of Slurm is asked for in place of c"
    assert (manager.asked, manager.released) == ([1], released)


@pytest.mark.parametrize(
    ("most", "manager", "agent"),
    [
        (3, Manager(), TAKEN),
        (5, Manager(replaces=False), TAKEN),
        (5, Manager(), SimpleNamespace(name="c", place=1, is_placed=False)),
    ],
    ids=["as many as may be there", "a manager that has no other", "it joined by hand"],
)
def test_nobody_is_asked_for(most, manager, agent):
    assert Scaling(HostRange(1, most), Pool(), manager, None, by_hand=False).replace(agent) == ""
    assert manager.asked == []


@pytest.mark.parametrize(
    ("manager", "why"),
    [(Manager(refuses=True), "no more than three"), (Manager(release_fails=True), "it does not answer")],
    ids=["it has no other", "it takes none back"],
)
def test_a_manager_that_gives_no_other_is_quoted(manager, why):
    scaling = Scaling(HostRange(1, 5), Pool(), manager, None, by_hand=False)
    assert scaling.replace(TAKEN) == f"note: no host can be asked for in place of c: {why}"


def test_hosts_that_end_one_after_the_other_are_not_replaced_for_ever():
    notes: list[str] = []
    manager, replacing = Manager(), Replacing(notes.append, clock=lambda: 5.0)
    for _ in range(MOST_IN_A_ROW + 2):
        replacing.taken(TAKEN)
    replacing.begin(Scaling(HostRange(1, 5), Pool(), manager, None, by_hand=False))
    replacing.close()
    assert sum(manager.asked) == MOST_IN_A_ROW
    assert notes[-1] == f"note: no host is asked for in place of c: {MOST_IN_A_ROW} were, within a minute"
