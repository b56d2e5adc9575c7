"""The coordinator's side of agents; the agents are sockets of this test."""

import gc
import queue
import re
import socket
import threading
import weakref
from contextlib import contextmanager
from dataclasses import replace

import pytest

from nfold.core import codec
from nfold.core.options.host_range import HostRange
from nfold.errors import ClusterError
from nfold.hosts.agent_pool import AgentPool
from nfold.hosts.host_agent import RETURNED, HostAgent, HostChanges, make_room
from nfold.hosts.host_facts import facts_of_this_host
from nfold.hosts.manager import PlaceState
from nfold.hosts.program_files.archive import Archive
from nfold.hosts.program_files.lock_file import LockFile
from nfold.launch.output import Output
from nfold.runtime.control.channel import ChannelClosed, SocketChannel

TOLD = {"do": "program", "digest": "d1", "script": "train.py", "function": "program", "lock": None}
TOLD |= {"leaves_in_order": False, "hold_s": 0.0}
PROGRAM = Archive(content=b"packed", digest="d1", script="train.py")


class NoManager:
    """Tells what it was told to tell."""

    title = "a stub"
    most_time_s = None

    def __init__(self, *states):
        self.told = list(states)

    def states(self):
        return self.told

    def last_lines(self, place):
        return [f"last line of {place}"]


class FakeAgent:
    """The far end of one agent."""

    def __init__(self, pool, place=None, name="", returns=False, **facts):
        near, far = socket.socketpair()
        self.channel = SocketChannel(far)
        self.thread = threading.Thread(target=pool.take, args=(SocketChannel(near), "10.0.0.9:1"), daemon=True)
        self.thread.start()
        own = replace(facts_of_this_host("python"), **{"host": "h", **facts})
        self.say("agent", place=place, name=name, facts=codec.encode(own), returns=returns, members=[])

    def say(self, what, blob=b"", **told):
        self.channel.send({"is": what, **told}, blob)

    def hear(self):
        return self.channel.receive()


@pytest.fixture
def said():
    return queue.SimpleQueue()


@pytest.fixture
def output(tmp_path):
    made = Output(tmp_path / "log.txt")
    yield made
    made.close()


@pytest.fixture
def pool(output, said):
    return AgentPool(output, said.put, lost=lambda member, how: said.put((member, how)))


@pytest.fixture
def arrive(pool):
    """Let an agent dial in; all of them hang up at the end."""
    come = []

    def arrive(**told):
        come.append(FakeAgent(pool, **told))
        return come[-1]

    yield arrive
    for agent in come:
        agent.channel.close()
        agent.thread.join(30.0)


def wait(pool, number, manager=None, within_s=30.0, is_called_off=lambda: False):
    return pool.wait(number, manager or NoManager(), within_s, is_called_off)


@contextmanager
def held(pool, *agents):
    """Agents that have got the program."""
    sending = threading.Thread(target=pool.send_program, args=(PROGRAM, "program", 30.0))
    sending.start()
    for agent in agents:
        assert agent.hear()[0] == TOLD
        agent.say("holds")
    sending.join()
    yield


def test_agents_are_ordered_by_place_and_named_apart(pool, arrive):
    arrive(place=1)
    arrive(place=0)
    arrive(place=2, name="pi-1")

    agents = wait(pool, 3)

    assert [agent.place for agent in agents] == [0, 1, 2]
    assert sorted(agent.name for agent in agents) == ["h", "h-2", "pi-1"]


def test_who_joins_by_hand_fills_the_next_place(pool, arrive):
    arrive(place=0)
    wait_for_one = wait(pool, 1)
    assert wait_for_one[0].place == 0


def test_who_joins_by_hand_makes_room_for_who_was_granted_its_place():
    facts = facts_of_this_host("python")
    laptop = HostAgent(0, "laptop", facts, None)
    placed = HostAgent(1, "node-1", facts, None, is_placed=True)
    agents = {0: laptop, 1: placed}
    make_room(0, agents)
    assert agents == {1: placed, RETURNED + 1: laptop}
    assert laptop.place == RETURNED + 1
    make_room(1, agents)
    make_room(None, agents)
    assert agents == {1: placed, RETURNED + 1: laptop}, "who was granted a place keeps it"


def test_other_versions_are_refused_on_both_sides(pool, arrive):
    own = facts_of_this_host("python").versions
    agent = arrive(place=0, name="pi-1", versions=replace(own, torch="1.0"))

    with pytest.raises(
        ClusterError, match=rf"pi-1 has .* torch 1\.0; this machine has .* torch {re.escape(own.torch)}"
    ):
        wait(pool, 1)
    assert "Install the same versions" in agent.hear()[0]["why"]


def test_another_torch_does_not_matter_where_an_environment_brings_one(output, said):
    own = facts_of_this_host("python").versions
    pool = AgentPool(output, said.put, torch_comes=True)
    agent = FakeAgent(pool, place=0, name="pi-1", versions=replace(own, torch="1.0"))
    wait(pool, 1)
    lock = LockFile(name="my.lock", text="torch==2.13.0")

    sending = threading.Thread(target=pool.send_program, args=(replace(PROGRAM, lock=lock), "program", 30.0))
    sending.start()
    assert codec.decode(LockFile, agent.hear()[0]["lock"]) == lock
    agent.say("making")
    assert said.get() == "pi-1 makes the environment of my.lock, which is kept there"
    agent.say("holds")
    sending.join()
    agent.channel.close()

    other = FakeAgent(AgentPool(output, said.put, torch_comes=True), versions=replace(own, python="3.8.0", torch="1.0"))
    assert "has nfold" in other.hear()[0]["why"]
    other.channel.close()


def test_sending_can_be_called_off(pool, arrive):
    arrive(place=0)
    wait(pool, 1)

    with pytest.raises(KeyboardInterrupt):
        pool.send_program(PROGRAM, "program", 30.0, lambda: True)


def test_an_agent_too_many_is_sent_away(pool, arrive):
    arrive(place=0)
    wait(pool, 1)

    late = arrive(place=1)

    assert "has all the hosts" in late.hear()[0]["why"]


@pytest.mark.parametrize(("reason", "told"), [("exited with code 127", "exited with code 127"), ("", "ended")])
def test_a_place_whose_agent_ended(pool, arrive, reason, told):
    arrive(place=0)
    ended = PlaceState(place=1, name="pi-2", stage="ended", reason=reason)

    with pytest.raises(ClusterError, match=f"a stub: the agent on pi-2 {told} before") as raised:
        wait(pool, 2, NoManager(ended))
    assert "last line of 1" in raised.value.__notes__[0]


def test_who_waits_too_long_is_told_why(pool, said):
    waiting = PlaceState(place=0, name="", stage="waiting", reason="Priority")

    with pytest.raises(ClusterError, match=r"0 of 2 hosts came within .*Missing: place 0 \(Priority\).*--hosts-within"):
        wait(pool, 2, NoManager(waiting), within_s=0.01)
    assert said.get() == "waiting for 2 hosts of a stub: Priority"


def test_waiting_can_be_called_off(pool):
    with pytest.raises(KeyboardInterrupt):
        wait(pool, 1, is_called_off=lambda: True)


def test_a_clock_that_is_wrong_is_told(pool, arrive, said):
    now_s = facts_of_this_host("python").time_s
    arrive(place=0, name="pi-1", time_s=now_s + 3600)
    wait(pool, 1)

    told = said.get()
    assert "the clock of pi-1 is" in told
    assert "ahead of this machine's" in told


def test_the_program_is_sent_to_who_wants_it(pool, arrive):
    has, wants = arrive(place=0), arrive(place=1)
    wait(pool, 2)
    sending = threading.Thread(target=pool.send_program, args=(PROGRAM, "program", 30.0))
    sending.start()
    has.hear()
    has.say("holds")
    wants.hear()
    wants.say("wants")
    assert wants.hear() == ({"do": "archive"}, b"packed")
    wants.say("holds")
    sending.join(30.0)
    assert not sending.is_alive()


def test_a_host_without_room_ends_the_wait(pool, arrive):
    agent = arrive(place=0, name="pi-1")
    wait(pool, 1)
    agent.say("failed", why="cannot unpack: No space left on device")

    with pytest.raises(Exception, match="pi-1: cannot unpack: No space left"):
        pool.send_program(PROGRAM, "program", 30.0)


def test_how_a_member_ended_is_told_with_its_host(pool, arrive):
    agent = arrive(place=0, name="pi-1")
    (home,) = wait(pool, 1)
    with held(pool, agent):
        pool.start(3, home)
        assert agent.hear()[0] == {"do": "start", "member": 3}
        assert pool.ended(3, 0.0) is None
        agent.say("ended", member=3, how="was killed by signal 9 (SIGKILL)")
        assert pool.ended(3, 30.0) == "was killed by signal 9 (SIGKILL) on pi-1"


def test_members_are_lost_with_their_host(pool, arrive, said):
    agent = arrive(place=0, name="pi-1")
    (home,) = wait(pool, 1)
    with held(pool, agent):
        pool.start(0, home)
        agent.hear()
        agent.channel.close()
        how = "was lost with its host pi-1: its agent closed the connection"
        assert pool.ended(0, 30.0) == how
        assert said.get(timeout=30.0) == (0, how)


def test_an_agent_that_says_nonsense_is_lost(pool, arrive):
    agent = arrive(place=0, name="pi-1")
    (home,) = wait(pool, 1)
    with held(pool, agent):
        pool.start(0, home)
        agent.say("output", b"of nobody")
        assert "said something that no agent says (KeyError('member'))" in pool.ended(0, 30.0)


def test_a_host_that_leaves_says_why(pool, arrive):
    agent = arrive(place=0, name="pi-1")
    (home,) = wait(pool, 1)
    with held(pool, agent):
        pool.start(0, home)
        agent.hear()
        agent.say("leaving", why="the agent on pi-1 was told to end")
        agent.channel.close()
        assert pool.ended(0, 30.0) == "was lost with its host pi-1: the agent on pi-1 was told to end"


@pytest.fixture
def open_pool(output, said):
    """A job of one host that takes a second one."""
    return AgentPool(
        output,
        said.put,
        changes=HostChanges(
            hosts=HostRange(1, 2),
            came=lambda agent: said.put(agent.name),
            leaves=lambda member, _: said.put(member),
            taken=lambda agent: said.put(f"{agent.name} was taken away"),
        ),
        lost=lambda member, how: said.put((member, how)),
    )


@pytest.fixture
def begun(open_pool):
    """Its first host, which runs a member; hangs up at the end."""
    agent = FakeAgent(open_pool, place=0, name="pi-1")
    (home,) = wait(open_pool, 1)
    sending = threading.Thread(target=open_pool.send_program, args=(PROGRAM, "program", 30.0))
    sending.start()
    assert agent.hear()[0] == TOLD | {"leaves_in_order": True}
    agent.say("holds")
    sending.join(30.0)
    open_pool.start(0, home)
    assert agent.hear()[0]["do"] == "start"
    yield agent
    agent.channel.close()
    agent.thread.join(30.0)


def joined(pool, said, **told):
    """A host that comes while the job goes on, and holds its program."""
    agent = FakeAgent(pool, **told)
    assert agent.hear()[0]["do"] == "program"
    agent.say("holds")
    assert said.get(timeout=30.0) == told["name"]
    return agent


def test_a_host_that_comes_later_gets_the_program_and_then_a_member(open_pool, begun, said):
    agent = joined(open_pool, said, name="pi-2")
    open_pool.start(1, open_pool.next_ready())
    assert agent.hear()[0] == {"do": "start", "member": 1}
    with pytest.raises(ClusterError, match="no host waits for a member"):
        open_pool.next_ready()

    late = FakeAgent(open_pool, name="pi-3")
    assert late.hear()[0]["why"] == "the job has all the 2 hosts that --nodes 1:2 allows"
    for each in (agent, late):
        each.channel.close()


def test_a_host_whose_member_is_not_let_in_is_told_why(open_pool, begun, said):
    agent = joined(open_pool, said, name="pi-2")
    open_pool.start(1, open_pool.next_ready())
    open_pool.release(1, why="it is not let in: it has other data.")
    assert [agent.hear()[0]["do"] for _ in range(2)] == ["start", "release"]
    assert agent.hear()[0] == {"do": "refuse", "why": "it is not let in: it has other data."}
    agent.channel.close()
    agent.thread.join(30.0)
    assert said.empty(), "nothing is lost, and nothing was taken away"


def test_a_host_with_other_versions_that_comes_later_is_told_and_the_others_go_on(open_pool, begun, said):
    own = facts_of_this_host("python").versions
    agent = FakeAgent(open_pool, name="pi-2", versions=replace(own, torch="1.0"))
    assert agent.hear()[0]["do"] == "refuse"
    assert re.match(r"note: pi-2 has .* torch 1\.0; .* It is not let in; the others go on\.", said.get(timeout=30.0))
    agent.channel.close()


def test_a_host_that_leaves_in_order_is_free_when_its_member_is(open_pool, begun, said):
    begun.say("leaving", why="its host wants it to")
    begun.say("leaving", why="its host is in a hurry")
    assert [said.get(timeout=30.0) for _ in range(2)] == [0, 0], "its member is to leave"
    successor = joined(open_pool, said, name="pi-2")
    open_pool.release(0)
    assert [begun.hear()[0]["do"] for _ in range(2)] == ["release", "stop"]
    begun.say("bye")
    begun.thread.join(30.0)
    assert said.get(timeout=30.0) == "pi-1 was taken away"
    assert said.empty(), "nothing is lost"
    back = joined(open_pool, said, name="pi-1")
    for each in (successor, back):
        each.channel.close()


def test_a_host_whose_member_is_lost_comes_again_three_times(open_pool, begun, said):
    for member in range(3):
        begun.say("ended", member=member, how="was killed by signal 9 (SIGKILL)")
        assert open_pool.comes_again(member)
        open_pool.release(member, is_lost=True)
        assert begun.hear()[0] == {"do": "release", "member": member}
        assert said.get(timeout=30.0) == "pi-1"
        open_pool.start(member + 1, open_pool.next_ready())
        assert begun.hear()[0] == {"do": "start", "member": member + 1}
    assert not open_pool.comes_again(3)
    open_pool.release(3, is_lost=True)
    assert [begun.hear()[0]["do"] for _ in range(2)] == ["release", "stop"], "it is given back"


def test_a_host_that_is_gone_is_told_of_and_does_not_come_again(open_pool, begun, said):
    gone: queue.SimpleQueue[str] = queue.SimpleQueue()
    open_pool._changes = replace(open_pool._changes, gone=lambda agent: gone.put(agent.name))
    connection = weakref.ref(open_pool.here()[0].channel)
    begun.channel.close()
    assert gone.get(timeout=30.0) == "pi-1"
    begun.thread.join(30.0)
    assert not open_pool.comes_again(0)
    gc.collect()
    assert connection() is None, "hundreds may be lost, each with what encrypts for it"


def test_a_host_that_leaves_before_it_has_a_member_is_free_at_once(open_pool, begun, said):
    agent = joined(open_pool, said, name="pi-2")
    agent.say("leaving", why="its host wants it to")
    assert agent.hear()[0]["do"] == "stop"
    with pytest.raises(ClusterError, match="pi-2 has gone, or leaves, before it had a member"):
        open_pool.next_ready()  # for who was told that it is there
    agent.channel.close()


def test_lines_are_written_whole_behind_their_member_and_host(pool, arrive, output, tmp_path):
    agents = [arrive(place=0, name="a"), arrive(place=1, name="b")]
    wait(pool, 2)
    with held(pool, *agents):
        agents[0].say("output", b"one\ntw", member=0)
        agents[1].say("output", b"else\n", member=1)
        agents[0].say("output", b"o\n", member=0)
        for agent in agents:
            agent.say("ended", member=0, how="x")
            agent.say("bye")
            agent.thread.join(30.0)
    output.close()
    lines = (tmp_path / "log.txt").read_text().splitlines()
    assert sorted(lines) == ["[0 on a] one", "[0 on a] two", "[1 on b] else"]


def test_the_last_lines_are_whole_where_members_print_at_once(output):
    for member, printed in ((0, b"one\ntw"), (1, b"el"), (0, b"o\nhal"), (1, b"se\n")):
        output.add(member, printed, "a")

    assert output.last_lines() == ["else", "hal"]


def test_stop_ends_agents_and_waits_for_them(pool, arrive):
    agent = arrive(place=0)
    wait(pool, 1)
    stopping = threading.Thread(target=pool.stop, args=(2.0,))
    stopping.start()
    assert agent.hear()[0] == {"do": "stop", "grace_s": 2.0}
    agent.say("bye")
    stopping.join(30.0)
    assert not stopping.is_alive()
    with pytest.raises(ChannelClosed):
        agent.hear()
    pool.stop(0.0)


@pytest.mark.parametrize(("grace_s", "waits_s"), [(2.0, 35.0), (40.0, 45.0), (0.0, 5.0)])
def test_stop_waits_as_long_as_members_may_take_to_leave(output, said, monkeypatch, grace_s, waits_s):
    pool, waited_s = AgentPool(output, said.put, leave_s=30.0), []
    monkeypatch.setattr(pool._changed, "wait_for", lambda _, within_s: waited_s.append(within_s))

    pool.stop(grace_s)

    assert waited_s == [waits_s]


def test_who_says_nonsense_is_no_agent(pool, said):
    near, far = socket.socketpair()
    channel = SocketChannel(far)
    channel.send({"is": "agent", "place": 0, "name": "", "facts": {"host": 3}})

    pool.take(SocketChannel(near), "10.0.0.9:1")

    channel.close()
    assert "10.0.0.9:1 said that it is an agent" in said.get()


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"name": "evil\n\x1b[31mred"}, "the name of a host is one line of printable characters"),
        ({"host": "a\x00"}, "the name of a host is one line of printable characters"),
        ({"name": "n" * 254}, "the name of a host is text of at most 253 characters"),
        ({"name": 3}, "the name of a host is text of at most 253 characters"),
    ],
    ids=str,
)
def test_a_host_with_a_name_that_no_terminal_shows_is_sent_away(arrive, told, why):
    assert arrive(**told).hear()[0] == {"do": "refuse", "why": why}


def test_who_comes_back_takes_no_place_of_a_manager_and_all_are_told_to_hold(pool, arrive):
    back = [arrive(place=1, name="back", returns=True), arrive(place=1, name="again", returns=True)]
    new = arrive(place=1, name="new")

    agents = wait(pool, 3)
    pool.hold("type this")
    late = arrive(place=7, returns=True)

    assert agents[0].name == "new"
    assert {agent.name for agent in agents[1:]} == {"back", "again"}, "in whichever order they come"
    for agent in (*back, new):
        assert agent.hear()[0] == {"do": "hold", "for_s": 0.0, "resume": "type this"}
    assert late.hear()[0]["do"] == "refuse", "the job has all of its hosts"
