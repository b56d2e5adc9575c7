"""What an agent tells of what it cannot do, and what it does when its coordinator is gone. The test is coordinator."""

import socket
import threading

import pytest

from nfold.hosts.agent import agent as agents
from nfold.hosts.agent import holding
from nfold.hosts.agent.agent import EXIT_LOST, Agent, AgentSettings
from nfold.runtime.control.channel import ChannelClosed, SocketChannel

pytestmark = pytest.mark.timeout(30)


def test_whatever_breaks_while_an_environment_is_made_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    near, far = map(SocketChannel, socket.socketpair())
    agent = Agent(near, ("127.0.0.1", 1), AgentSettings(addresses=(), token="t"))
    agent._wanted = {"lock": {"name": "my.lock", "text": "", "more": ""}}

    agent._make(tmp_path)

    told, _ = far.receive()
    near.close()
    far.close()
    assert told["is"] == "failed"
    assert told["why"].startswith("its environment cannot be made: ")


class Alone:
    """An agent whose coordinators the test is, one after another."""

    def __init__(self):
        near, self.far = map(SocketChannel, socket.socketpair())
        self.next = threading.Semaphore(0)
        self.agent = Agent(near, ("127.0.0.1", 1), AgentSettings(addresses=(), token="t", name="n1", place=2))
        self.codes = []
        self.thread = threading.Thread(target=lambda: self.codes.append(self.agent.run()), daemon=True)
        self.thread.start()

    def hello(self):
        """What it says to the one that there is now."""
        told, _ = self.far.receive()
        assert told["is"] == "agent"
        return told["returns"], told["members"], told["place"]

    def hold(self, for_s, resume=""):
        """Let it hold; it has heard that when it knows nothing of the order behind."""
        self.far.send({"do": "hold", "for_s": for_s, "resume": resume})
        self.far.send({"do": "none"})
        while self.far.receive()[0]["is"] != "failed":
            pass

    def dial(self, *_):
        if not self.next.acquire(blocking=False):
            raise ChannelClosed("nobody answers")
        near, self.far = map(SocketChannel, socket.socketpair())
        return near

    def another(self):
        before = self.far
        before.close()
        self.next.release()
        while self.far is before:
            self.thread.join(0.01)

    def code(self):
        self.thread.join(20.0)
        return self.codes[0]


@pytest.fixture
def alone(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(holding, "RETRY_S", 0.01)
    made = []
    monkeypatch.setattr(agents, "connect", lambda *_: made[0].dial())
    made.append(Alone())
    yield made[0]
    made[0].agent.leave(in_order=False)
    made[0].thread.join(20.0)
    made[0].far.close()


def test_an_agent_that_holds_serves_the_next_coordinator(alone, capsys):
    assert alone.hello() == (False, [], 2)
    alone.hold(60.0, "nfold resume run")
    alone.agent.lose_input()  # with its command
    alone.another()
    assert alone.hello() == (True, [], 2)
    alone.far.send({"do": "stop", "grace_s": 0.0})
    assert alone.code() == 0
    assert "its ranks here hold for 60.0 s. nfold resume run" in capsys.readouterr().err


def test_one_that_was_not_told_to_hold_ends_with_its_coordinator(alone):
    alone.far.close()
    assert alone.code() == EXIT_LOST


def test_one_that_is_refused_prints_why_and_ends_with_another_code(alone, capsys):
    alone.hold(600.0)
    alone.far.send({"do": "refuse", "why": "it is not let in: it has other data."})
    assert alone.code() == 2
    assert "nfold agent: it is not let in: it has other data." in capsys.readouterr().err


def test_its_time_ends(alone, capsys):
    alone.hold(0.05)
    alone.far.close()
    assert alone.code() == EXIT_LOST
    assert "holds no longer: the ranks here end" in capsys.readouterr().err


def test_who_is_told_to_end_does_not_hold(alone):
    alone.hold(600.0)
    alone.another()
    assert alone.hello()[0]
    alone.far.close()
    alone.agent.leave()
    assert alone.code() == EXIT_LOST


def test_the_same_program_of_another_coordinator_is_held_already(alone, tmp_path, monkeypatch):
    """And what starts members stays; another program has its own."""
    monkeypatch.setattr(agents, "template_command", lambda *_: ["true"])
    program = {"do": "program", "digest": "d1", "script": "mine.py", "function": "program", "lock": None, "hold_s": 9.0}
    folder = tmp_path / "nfold" / "programs" / "d1"
    folder.mkdir(parents=True)
    alone.hello()
    starts = []
    for order in (program, program, program | {"function": "other"}):
        alone.hold(60.0)
        alone.far.send(order)
        while alone.far.receive()[0]["is"] != "holds":
            pass
        starts.append(alone.agent._launcher)
        alone.another()
        assert alone.hello()[0]
    assert starts[0] is starts[1] is not starts[2]
